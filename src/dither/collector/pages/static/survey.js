// A survey in a page: what is asked, one question a screen, tries without consequence, and one answer, randomised by dither.js in this browser.
// The parts of the page and its sentences come from the collector (survey.html), in the reader's language.

import * as dither from './dither.js';
import { control, readOne, recordOf } from './form.js';
import { fitting } from './fits.js';
import { _, bytesOf, element, hundred, meaning, moment, ngettext, ofHundred, quoted, speak, spelt } from './words.js';

const TRIES = 60, LOOK_AGAIN = 30000, SOON = 3000, MAX_ANNOUNCEMENT = 8 << 20;
const SCREENS = ['intro', 'ready', 'questions', 'waiting', 'left', 'results'];
// Ends at which people want to know whether anything was sent: said from what `send` saw leave.
const TELLS_SENT = new Set(['asked-again', 'stale', 'scripts', 'offline', 'offline-now', 'used', 'other-token', 'cap', 'storage', 'moved', 'changed', 'damaged', 'unreadable', 'broken']);
const LOOKS_AGAIN = ['offline', 'draft', 'later', 'between'];
// Why the collector refused a report for good, in the books and as the encoder's code -> the sentence for it.
const REFUSED = { 'round-closed': 'late', conflict: 'conflict', 'unknown-token': 'token-unknown', closed: 'late', answered: 'conflict', token: 'token-unknown' };
// A code of the encoder's, of a result after which nothing was sent, or of an error -> the sentence for it.
const RESULTS = { 'not-open': 'between', 'used-elsewhere': 'used' };
const ERRORS = { 'no-campaign': 'unknown', token: 'other-token', invalid: 'broken', 'not-allowed': 'asked-again' };

/** Run the survey in `page`, an element made from survey.html. `history`: the browser's, for its back button; none inside another site's page. */
export function survey(page, { server, fragment = '', history = null }) {
  const at = (id) => page.querySelector(`#${id}`), { campaign, epsilon: promised, level, scripts, preview } = page.dataset;
  const words = JSON.parse(at('words').textContent), OWN = `dither:token:${campaign}`, [given, named] = fragment.replaceAll('%20', '').toLowerCase().split('~');
  speak(page.lang, JSON.parse(at('messages').textContent));
  const state = { announcement: null, token: '', ticket: false, sent: false, asked: [], controls: [], step: 0, again: null };
  const tries = { drawn: 0, hits: 0 };

  const show = (...screens) => { for (const id of SCREENS) at(id).hidden = !screens.includes(id); };
  const sentence = (kind) => page.querySelector(`template[data-say="${kind}"]`).content.cloneNode(true);

  function say(kind, more = '') {
    const known = page.querySelector(`template[data-say="${kind}"]`) ? kind : 'broken', text = sentence(known);
    if (more) text.lastElementChild.textContent = more;
    if (TELLS_SENT.has(known)) text.lastElementChild.prepend(sentence(state.sent ? 'may-have' : 'not-sent').querySelector('strong').textContent, ' ');
    at('state').replaceChildren(text);
    at('state').className = known === 'stored' ? 'done' : 'said';
    at('state').dataset.kind = known;
    at('state').hidden = false;
  }
  function end(kind, more) {
    show('intro');
    say(kind, more);
    if (['closed', 'late', 'conflict'].includes(kind)) at('results').hidden = false;
  }

  // What the encoder keeps about this campaign; a `SyntaxError` if that cannot be read.
  function books() {
    const kept = JSON.parse(localStorage.getItem('dither:device'));
    if (kept !== null && kept.format !== 1) throw new SyntaxError('books of another version');
    return kept?.campaigns[campaign] ?? null;
  }

  // The ticket: of an earlier visit, of the link, or, where anybody may take part, drawn now and kept.
  function ticket(participation) {
    if (preview) return { token: dither.toHex(crypto.getRandomValues(new Uint8Array(32))) };
    if (given && !/^[0-9a-f]{64}$/.test(given)) return { fault: 'bad-token' };
    const kept = books()?.token, known = kept ?? localStorage.getItem(OWN);
    if (given && kept && given !== kept) return { fault: 'other-token' };
    if (given || known) return { token: given || known };
    if (participation === 'tokens') return { fault: 'token' };
    const drawn = dither.toHex(crypto.getRandomValues(new Uint8Array(32)));
    localStorage.setItem(OWN, drawn);
    return localStorage.getItem(OWN) === drawn ? { token: drawn } : { fault: 'storage' };
  }

  // The announcement of a preview is for operators, whom their session tells.
  const signedIn = (address, options) => fetch(address, { ...options, credentials: 'same-origin' });

  async function look() {
    const address = preview ?? `${server}/v1/campaigns/${campaign}`;
    const { status, text } = await dither.ask(preview ? signedIn : fetch, address, MAX_ANNOUNCEMENT);
    if (status !== 200) return { fault: status === 404 ? 'unknown' : 'offline' };
    const read = await dither.readAnnouncement(text);
    if (read.announcement.campaign !== campaign) return { fault: 'unreadable' };
    // Never less protection than the page says; last digits differ between the collector's arithmetic and the browser's.
    return read.epsilon > Number(promised) * (1 + 1e-9) ? { fault: 'stale' } : read;
  }

  // The id under which the answer is stored: of its round, or of the whole campaign where people are assigned on arrival.
  const receiptOf = async ({ assignment }, round) => dither.toHex(await dither.reportId(
    dither.fromHex(state.token), dither.fromHex(campaign), assignment === 'arrival' ? null : round));

  function lookAgain(after = LOOK_AGAIN) {
    clearTimeout(state.again);
    state.again = setTimeout(begin, 1000 * dither.retryPause(after / 2000, after / 1000)); // pages that wait together do not return together
  }

  // What is typed stays: once the form is there, nothing looks again, whatever timer or event asks for it.
  async function begin() {
    clearTimeout(state.again);
    if (at('questions').hidden && at('ready').hidden) await lookUp().catch((error) => end(error instanceof SyntaxError ? 'damaged' : 'broken'));
  }

  async function lookUp() {
    if (!at('state').dataset.kind) say('looking');
    if (!globalThis.isSecureContext || !crypto.subtle) return end('insecure');
    if (named !== undefined && named !== scripts) return end('scripts');
    try {
      localStorage.setItem('dither:probe', '1');
      localStorage.removeItem('dither:probe');
    } catch { return end('storage'); }
    const { announcement, fault } = await look().catch((error) => ({ fault: error instanceof dither.Refused ? 'unreadable' : 'offline' }));
    if (fault) { end(fault); return fault === 'offline' ? lookAgain() : undefined; }
    const mine = ticket(announcement.participation);
    if (mine.fault) return end(mine.fault);
    // A token that this page drew is on no other device; any other is a ticket.
    Object.assign(state, { announcement, token: mine.token, ticket: !preview && mine.token !== localStorage.getItem(OWN) });
    const [[round, last] = []] = Object.entries(books()?.token === mine.token ? books().answers : {});
    const now = announcement.plan && await dither.chosen(announcement, dither.fromHex(state.token));
    const asked = announcement.plan?.round === Number(round) ? now.questions : [];
    // A collector restored from a backup may have lost the open round's answer: the same bytes are sent once more.
    if (last?.kept && asked.length && last.kept.epoch !== (announcement.epoch ?? '')) {
      state.asked = asked;
      show('waiting');
      return deliver({}, true);
    }
    if (last?.state === 'acknowledged') return showReceipt(await receiptOf(announcement, Number(round)));
    if (last?.state === 'waiting') return showWaiting(asked);
    if (last) return end(last.state === 'answered' ? 'conflict' : REFUSED[last.cause] ?? 'invalid');
    if (announcement.state === 'draft') { end('draft'); return lookAgain(); }
    if (announcement.state === 'closing') { end('between'); return lookAgain(SOON); }
    if (!now) return end('closed');
    if (!now.asked) {
      end(now.later ? 'later' : 'not-asked', now.later ? comeBack(announcement.round_closes) : '');
      return now.later ? lookAgain() : undefined;
    }
    // Before anything is typed; `takePart` asks again before it draws. null if the collector does not say.
    const used = state.ticket && await receiptOf(announcement, announcement.plan.round)
      .then((receipt) => dither.isStored({ url: server, campaign, receipt })).catch(() => null);
    if (used === null) { end('offline'); return lookAgain(); }
    if (used) return end('used');
    return makeForm(now);
  }

  // When to come back, if the round has an end that is known.
  const comeBack = (seconds) => (Number.isFinite(seconds)
    ? _('Your ticket is for a later part. Come back after %(time)s, or leave this page open: it goes on here by itself.', { time: moment(seconds) }) : '');
  const attributeOf = (name) => state.announcement.schema.attributes.find((a) => a.name === name);

  function makeForm({ questions, attributes: names }) {
    const all = state.announcement.schema.attributes, others = all.filter((a) => !names.includes(a.name)).map((a) => words[a.name].question);
    state.asked = questions;
    state.controls = names.map((name, i) => {
      const rounded = questions.find((q) => q.rounded && q.attributes.includes(name));
      return { name, ...control(attributeOf(name), words, i, rounded?.mechanism.cells) };
    });
    at('fields').replaceChildren(...state.controls.map(({ box }) => box));
    at('asked').replaceChildren(...(others.length ? [element('details', {},
      element('summary', {}, ngettext('%(num)s question is for other people, chosen by chance', '%(num)s questions are for other people, chosen by chance', others.length)),
      element('ul', {}, ...others.slice(0, 200).map((question) => element('li', { dir: 'auto' }, question))))] : []));
    forgetTries();
    if (at('state').dataset.kind !== 'asked-again') at('state').hidden = true;
    show('intro', 'ready');
  }

  const onReview = () => state.step === state.controls.length;
  function goTo(step, { remember = true, focus = true } = {}) {
    state.step = step;
    if (remember) history?.pushState({ step }, '');
    if (step < 0) return show('intro', 'ready');
    show('questions');
    at('state').hidden = true;
    const total = state.controls.length, review = onReview();
    state.controls.forEach(({ box }, i) => { box.hidden = i !== step; });
    at('review').hidden = at('send').hidden = !review;
    at('next').hidden = review;
    at('asked').hidden = step > 0;
    at('meter').value = step / total;
    at('step').textContent = review ? _('All questions answered') : _('Question %(number)s of %(total)s', { number: step + 1, total });
    if (review) showReview();
    if (focus) (review ? at('review') : state.controls[step].box.querySelector('input')).focus();
    page.scrollIntoView?.({ block: 'start' });
    return undefined;
  }

  // The chances of the one question that is asked; null where its reports speak for no single answer. A number that is rounded
  // at random has no single cell that a report could fit.
  function oddsHere() {
    const [{ mechanism, rounded }] = state.asked;
    return state.asked.length === 1 && !rounded && fitting(mechanism) !== null ? dither.odds(mechanism) : null;
  }

  function showReview() {
    at('answers').replaceChildren(...state.controls.map(({ name, said }) => element('p', {},
      element('span', { className: 'soft', dir: 'auto' }, words[name].question), ' ', element('strong', { dir: 'auto' }, said()))));
    const found = oddsHere();
    at('odds').hidden = at('try').hidden = found === null;
    if (found === null) return;
    const values = { answer: quoted(state.controls.map(({ said }) => said()).join(' · ')), same: ofHundred(found.own), other: ofHundred(found.other) };
    at('odds').replaceChildren(hundred(found.own), element('p', {},
      _('If you answer %(answer)s, %(same)s of 100 people like you would send something pointing to it, and so would %(other)s of 100 others.', values), ' ',
      level === 'weak' ? _('So somebody who sees it can be almost certain of your answer.') : _('Nobody can tell for sure which you are.')));
  }

  const record = () => recordOf(state.controls);

  // The cell of a record; null if an answer is outside what is asked and an answer picked at random takes its place.
  function cellFor(q, answers) {
    const known = new Map(q.attributes.map((name) => [name, attributeOf(name)])), codes = new Map();
    for (const [name, attribute] of known) codes.set(name, dither.codeOf(attribute, answers[name]) ?? dither.codeOf(attribute, undefined));
    return [...codes.values()].includes(null) ? null : dither.cellOf(q, known, codes);
  }

  function forgetTries() {
    Object.assign(tries, { drawn: 0, hits: 0 });
    at('strip').hidden = at('key').hidden = true;
    at('strip').replaceChildren();
    at('practised').textContent = '';
  }

  async function practise(times) {
    const [q] = state.asked, fits = fitting(q.mechanism), answers = record(), cell = cellFor(q, answers);
    let last = null;
    for (let i = 0; i < times; i++) {
      [last] = (await dither.practise(state.announcement, state.asked, answers)).parts;
      if (cell === null) continue;
      const hit = fits(last, cell);
      tries.drawn++;
      tries.hits += hit ? 1 : 0;
      at('strip').append(element('span', { className: hit ? '' : 'other' }));
      if (at('strip').children.length > TRIES) at('strip').firstChild.remove();
    }
    at('strip').hidden = at('key').hidden = tries.drawn === 0;
    const counted = cell === null ? _('What you gave is outside what is asked, so no try can point to it.')
      : _('%(hits)s of %(drawn)s tries point to your answer; %(same)s of 100 are expected to.', { ...tries, same: ofHundred(oddsHere().own) });
    at('practised').textContent = `${counted} ${_('The last one would have said:')} ${said(q, last)}`;
  }
  const said = (q, payload) => meaning(words, attributeOf(q.attributes[0]), q, payload, fitting(q.mechanism));

  // Sending. The bytes are shown as the browser sends them.
  function send(answers) {
    const seen = (address, options = {}) => {
      if (address.endsWith('/reports')) {
        state.sent = true;
        showBytes(options.body);
      }
      return fetch(address, options);
    };
    // A round that began after the form was made may ask something else, or in another way: then nothing is drawn or sent, so that
    // what the page says about questions, odds, protection and bytes is about what is sent.
    const allowed = Object.keys(answers), { token, ticket: issued, asked: questions } = state, cap = state.announcement.epsilon;
    return dither.takePart({ url: server, campaign, record: answers, allowed, questions, cap, token, ticket: issued, fetch: seen });
  }

  function showBytes(body) {
    if (body.length <= 60) return;
    const payload = body.subarray(64), { length } = state.asked;
    at('bytes').textContent = spelt(body);
    at('said').textContent = length === 1 ? said(state.asked[0], payload)
      : length === 0 ? _('%(bytes)s of noise.', { bytes: bytesOf(payload) })
        : ngettext('%(bytes)s of noise about %(num)s question.', '%(bytes)s of noise about %(num)s questions.', length, { bytes: bytesOf(payload) });
    state.left = true;
  }

  // `unasked`: nobody has pressed anything, so nothing on the page moves.
  async function deliver(answers, unasked = false) {
    if (preview) {
      end('preview');
      return at('state').focus();
    }
    clearTimeout(state.again);
    const buttons = page.querySelectorAll('button');
    for (const button of buttons) button.disabled = true;
    if (!unasked) say('sending');
    try {
      const { result, code, receipt, comeBack: after, retryAfter } = await send(answers);
      if (result === 'acknowledged') showReceipt(receipt);
      else if (result === 'waiting') showWaiting(state.asked, retryAfter);
      else {
        end(result === 'answered' ? 'conflict' : result === 'refused' ? REFUSED[code] ?? 'invalid' : RESULTS[code] ?? code, result === 'not-asked' ? comeBack(after) : '');
        if (at('state').dataset.kind === 'between') lookAgain(SOON);
      }
    } catch (error) {
      const code = error.code ?? 'invalid';
      if (code === 'offline' && !at('waiting').hidden) showWaiting(state.asked, error.retryAfter);
      else if (code === 'offline') say('offline-now');
      else end(ERRORS[code] ?? code);
      if (code === 'not-allowed') await begin(); // what is asked now
    } finally {
      for (const button of buttons) button.disabled = false;
      at('left').hidden = !state.left;
      if (!unasked) at('state').focus();
    }
  }

  function showWaiting(asked, retryAfter = dither.retryPause()) {
    state.asked = asked;
    show('waiting');
    say('waiting');
    clearTimeout(state.again);
    state.again = setTimeout(sendAgain, 1000 * retryAfter);
  }
  const sendAgain = () => { if (at('state').dataset.kind === 'waiting') deliver({}, true); };

  function showReceipt(receipt) {
    show('results');
    say('stored');
    at('state').append(element('p', { className: 'bytes', id: 'receipt' }, receipt));
  }

  at('form').addEventListener('submit', (event) => {
    event.preventDefault();
    event.stopPropagation();
    if (onReview()) deliver(record());
    else if (readOne(state.controls[state.step])) goTo(state.step + 1);
  });
  at('fields').addEventListener('input', forgetTries);
  at('begin').addEventListener('click', () => goTo(0));
  at('back').addEventListener('click', () => (history ? history.back() : goTo(state.step - 1)));
  at('once').addEventListener('click', () => practise(1));
  at('often').addEventListener('click', () => practise(20));
  at('resend').addEventListener('click', () => deliver({}));
  // The browser's back button goes one question back, as long as nothing was sent.
  if (history) window.addEventListener('popstate', (event) => { if (!at('questions').hidden || !at('ready').hidden) goTo(event.state?.step ?? -1, { remember: false }); });
  // What may have changed meanwhile is looked at again as soon as somebody looks here, and now and then without.
  const lookNow = () => { if (!document.hidden && LOOKS_AGAIN.includes(at('state').dataset.kind)) begin(); };
  window.addEventListener('online', lookNow);
  window.addEventListener('online', sendAgain);
  document.addEventListener('visibilitychange', lookNow);
  begin();
}
