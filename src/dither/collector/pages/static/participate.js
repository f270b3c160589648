// A participant's page: what is asked, practice without consequence, and one answer, randomised by dither.js in this browser.

import * as dither from './dither.js';
import { control, readAll } from './form.js';
import { fitting } from './fits.js';
import { bytesOf, cellText, element, hundred, levelText, ofHundred, quoted, spelt } from './words.js';

const page = document.getElementById('participate'), campaign = page.dataset.campaign;
const { preview } = page.dataset; // the address of its announcement; an answer is not sent
const words = JSON.parse(document.getElementById('words').textContent);
const at = (id) => document.getElementById(id);
const PRACTICE = 60, LOOK_AGAIN = 30000, SOON = 3000, MAX_ANNOUNCEMENT = 8 << 20, OWN = `dither:token:${campaign}`;

// Each end of the road, in a sentence, and what to do. What is said to have been sent is what the browser was told to send.
const SENTENCES = {
  draft: ['This has not begun yet.', 'Come back later with the same link; it keeps its place for you.'],
  closed: ['This has ended; no more answers are taken.', 'There is nothing left to do. Thank you for coming.'],
  between: ['A round is being closed this very moment.', 'Leave this page open: if there is another one, it goes on here by itself.'],
  'asked-again': ['What is asked has changed since this page showed it.', 'Your questions as they are now are below. Please answer them and send again.'],
  late: ['Your randomised answer was sent, but came too late for its round and is not counted.', 'Its noise was drawn, and drawing a second time would tell more about you than was promised. There is nothing left to do; thank you for coming.'],
  unknown: ['This campaign is not here.', 'Open the link or code of your invitation again, or ask the person who sent it.'],
  offline: ['The collector cannot be reached.', 'Look at your connection; this page tries again by itself.'],
  preview: ['This is a preview: nothing was sent.', 'Participants now read that their answer is stored, and get a receipt.'],
  token: ['An invitation is needed to take part.', 'Open the link of your invitation itself: the part after # is your ticket, and it is missing here.'],
  'bad-token': ['The invitation in this link is damaged.', 'Open the link again as it was sent, to its very last character.'],
  'not-asked': ['You are not asked.', 'The round of your ticket has passed. There is nothing left to do; thank you for coming.'],
  later: ['You are not asked yet.', 'Your ticket is drawn for a later round. Keep this page or the link: it comes to life when your round opens.'],
  used: ['This invitation has been used already.', 'An answer with it is stored: from another device, another browser, or this one before its data was cleared. It counts once. If that was not you, tell the person who sent it to you.'],
  conflict: ['Your randomised answer was sent, but it is not counted.', 'An answer from another device with the same invitation was stored first. So two randomised answers with one invitation have reached the collector. If both are yours, together they may tell up to twice as much about you as this page promises (twice the epsilon). There is nothing left to do.'],
  'other-token': ['This browser has taken part with another invitation.', 'It answers once. Open your link in another browser or on another device.'],
  'token-unknown': ['Your randomised answer was sent, but the collector does not know this invitation.', 'It is not counted. Ask for a new invitation, and open it in another browser or on another device.'],
  cap: ['This device has given as much as it was allowed to.', 'Answering would exceed the limit kept in this browser for all surveys together.'],
  storage: ['This browser does not let the page keep anything.', 'Without that it could not make sure that you answer once. Allow storage for this site, or leave private browsing.'],
  insecure: ['This page is not loaded securely.', 'Open it with https: only then can your answer be randomised and sent.'],
  moved: ['This is another collector than the one you first answered at.', 'Ask the person who invited you.'],
  changed: ['The questions have changed since you first looked.', 'Ask the person who invited you.'],
  damaged: ['What this browser keeps about surveys is damaged.', 'Without it the page cannot make sure that you answer once. Ask the person who invited you.'],
  unreadable: ['What the collector asks cannot be read.', 'Ask the person who invited you.'],
  broken: ['This page did not work.', 'Load it again; if that does not help, tell the person who invited you.'],
  invalid: ['Your randomised answer was sent, but the collector did not take it.', 'It is not counted. You need not do anything.'],
};
// Ends at which people want to know whether anything was sent: said from what `send` saw leave.
const TELLS_SENT = new Set(['asked-again', 'offline', 'used', 'other-token', 'cap', 'storage', 'moved', 'changed', 'damaged', 'unreadable', 'broken']);
const NOT_SENT = 'None of your answers was sent on this visit.';
const MAY_HAVE = 'Your randomised answer was sent on this visit; it may or may not have arrived.';

const state = { announcement: null, token: '', ticket: false, sent: false, asked: [], names: [], controls: new Map() };

function say(kind, more = '') {
  const known = SENTENCES[kind] ? kind : 'broken', [what, then] = SENTENCES[known];
  const sent = state.sent ? MAY_HAVE : NOT_SENT;
  at('state').replaceChildren(
    element('p', {}, element('strong', {}, what)),
    element('p', {}, TELLS_SENT.has(known) ? `${sent} ${more || then}` : more || then),
  );
  at('state').className = 'said';
  at('state').dataset.kind = known;
}

// What the encoder keeps about this campaign; a `SyntaxError` if that cannot be read.
const books = () => {
  const kept = JSON.parse(localStorage.getItem('dither:device'));
  if (kept !== null && kept.format !== 1) throw new SyntaxError('books of another version');
  return kept?.campaigns[campaign] ?? null;
};

// The ticket: of an earlier visit, of the link, or, where anybody may take part, drawn now and kept.
function ticket(participation) {
  if (preview) return { token: dither.toHex(crypto.getRandomValues(new Uint8Array(32))) };
  const given = location.hash.slice(1).replaceAll('%20', '').toLowerCase();
  if (given && !/^[0-9a-f]{64}$/.test(given)) return { fault: 'bad-token' };
  const kept = books()?.token, known = kept ?? localStorage.getItem(OWN);
  if (given && kept && given !== kept) return { fault: 'other-token' };
  if (given) return { token: given };
  if (known) return { token: known };
  if (participation === 'tokens') return { fault: 'token' };
  const drawn = dither.toHex(crypto.getRandomValues(new Uint8Array(32)));
  localStorage.setItem(OWN, drawn);
  if (localStorage.getItem(OWN) !== drawn) return { fault: 'storage' };
  return { token: drawn };
}

// The announcement of a preview is for curators, whom their session tells.
const signedIn = (address, options) => fetch(address, { ...options, credentials: 'same-origin' });

async function look() {
  const { status, text } = await dither.ask(preview ? signedIn : fetch, preview ?? `${location.origin}/v1/campaigns/${campaign}`, MAX_ANNOUNCEMENT);
  if (status === 404) return { fault: 'unknown' };
  if (status !== 200) return { fault: 'offline' };
  const read = await dither.readAnnouncement(text);
  return read.announcement.campaign === campaign ? read : { fault: 'unreadable' };
}
const faultOf = (error) => ({ fault: error instanceof dither.Refused ? 'unreadable' : 'offline' });

// The id under which the answer is stored: of its round, or of the whole campaign where people are assigned on arrival.
const receiptOf = async (announcement, round) => dither.toHex(await dither.reportId(
  dither.fromHex(state.token), dither.fromHex(campaign), announcement.assignment === 'arrival' ? null : round));

// Whether an answer with this ticket is stored; null if the collector does not say.
const isUsed = async (announcement) => dither.isStored(
  { url: location.origin, campaign, receipt: await receiptOf(announcement, announcement.plan.round) }).catch(() => null);

let again = null;
function lookAgain(after = LOOK_AGAIN) {
  clearTimeout(again);
  again = setTimeout(begin, 1000 * dither.retryPause(after / 2000, after / 1000)); // pages that wait together do not return together
}

// What is typed stays: once the form is there, nothing looks again, whatever timer or event asks for it.
async function begin() {
  clearTimeout(again);
  if (!at('questions').hidden) return;
  await lookUp().catch((error) => say(error instanceof SyntaxError ? 'damaged' : 'broken'));
}

async function lookUp() {
  if (!at('state').dataset.kind) at('state').textContent = 'Looking up what is asked…';
  if (!globalThis.isSecureContext || !crypto.subtle) return say('insecure');
  try {
    localStorage.setItem('dither:probe', '1');
    localStorage.removeItem('dither:probe');
  } catch { return say('storage'); }
  const { announcement, fault } = await look().catch(faultOf);
  if (fault) { say(fault); return fault === 'offline' ? lookAgain() : undefined; }
  const mine = ticket(announcement.participation);
  if (mine.fault) return say(mine.fault);
  // A token that this page drew is on no other device; any other is a ticket.
  Object.assign(state, { announcement, token: mine.token, ticket: !preview && mine.token !== localStorage.getItem(OWN) });
  const answers = Object.entries(books()?.token === mine.token ? books().answers : {});
  const [[round, last] = []] = answers;
  if (last?.state === 'acknowledged') return showReceipt(await receiptOf(announcement, Number(round)));
  if (last?.state === 'waiting') return showWaiting(await questionsOf(announcement, Number(round)));
  if (last) return say(last.state === 'answered' ? 'conflict' : ENDS[last.cause] ?? 'invalid');
  if (announcement.state === 'draft') { say('draft'); return lookAgain(); }
  if (announcement.state === 'closing') { say('between'); return lookAgain(SOON); }
  if (announcement.plan === null) return say('closed');
  const now = await dither.chosen(announcement, dither.fromHex(state.token));
  if (!now.asked) {
    say(now.later ? 'later' : 'not-asked', now.later ? comeBack(announcement.round_closes) : '');
    return now.later ? lookAgain() : undefined;
  }
  // Before anything is typed; `takePart` asks again before it draws.
  const used = state.ticket && await isUsed(announcement);
  if (used === null) { say('offline'); return lookAgain(); }
  if (used) return say('used');
  Object.assign(state, { asked: now.questions, names: now.attributes });
  return showForm();
}

// What a report that waits is about, as long as its round is the open one.
const questionsOf = async (announcement, round) => (announcement.plan?.round !== round ? []
  : (await dither.chosen(announcement, dither.fromHex(state.token))).questions ?? []);

// When to come back, if the round has an end that is known.
const comeBack = (seconds) => (Number.isFinite(seconds)
  ? `Your ticket is drawn for a later round. Come back after ${new Date(1000 * seconds).toLocaleString()}, or leave this page open: it comes to life by itself.` : '');

const attributeOf = (name) => state.announcement.schema.attributes.find((a) => a.name === name);

function showForm() {
  if (!at('questions').hidden) return;
  const { names } = state, all = state.announcement.schema.attributes;
  const others = all.filter((a) => !names.includes(a.name)).map((a) => words[a.name].question);
  at('state').hidden = true;
  at('asked').replaceChildren(...explainChoice(names.length, all.length, others));
  state.controls = new Map();
  const fields = names.map((name, i) => {
    const rounded = state.asked.find((q) => q.rounded && q.attributes.includes(name));
    const made = control(attributeOf(name), words, i, rounded?.mechanism.cells);
    state.controls.set(name, made);
    return made.box;
  });
  at('fields').replaceChildren(...fields);
  at('questions').hidden = false;
  showOdds();
  forgetPractice();
}

function explainChoice(count, total, others) {
  if (!others.length) return [element('p', {}, count === 1 ? 'There is one question.' : `All ${total} questions are for you.`)];
  const list = element('ul', {}, ...others.slice(0, 200).map((question) => element('li', { dir: 'auto' }, question)));
  return [
    element('p', {}, `Of ${total} questions ${count === 1 ? 'one is' : `${count} are`} for you, drawn by chance from your ticket before you came. `
      + 'A little from each of many people is enough, and all of your protection goes to what counts.'),
    element('details', {}, element('summary', {}, `The ${others.length} that you are not asked`),
      element('p', {}, 'Others answer these. Nothing about them leaves your device, so nobody asks you to type it.'), list),
  ];
}

// The chances of the one question that is asked; null where its reports speak for no single answer. A number that is rounded
// at random has no single cell that a report could fit.
function oddsHere() {
  const [{ mechanism, rounded }] = state.asked;
  return state.asked.length === 1 && !rounded && fitting(mechanism) !== null ? dither.odds(mechanism) : null;
}

function showOdds() {
  const found = oddsHere();
  at('odds').hidden = found === null;
  at('try').hidden = found === null;
  if (found === null) return;
  const [same, other] = [ofHundred(found.own), ofHundred(found.other)];
  at('odds').replaceChildren(
    element('p', {}, `Of 100 people with your answer, about ${same} send something that fits it:`),
    hundred(found.own, `${same} of 100 dots are filled`),
    element('p', {}, `Of 100 people with any other answer, about ${other} send something that fits yours all the same:`),
    hundred(found.other, `${other} of 100 dots are filled`),
  );
}

// The cell of a record; null if an answer is outside what is asked and an answer picked at random takes its place.
function cellFor(q, record) {
  const known = new Map(q.attributes.map((name) => [name, attributeOf(name)])), codes = new Map();
  for (const [name, attribute] of known) codes.set(name, dither.codeOf(attribute, record[name]) ?? dither.codeOf(attribute, undefined));
  return [...codes.values()].includes(null) ? null : dither.cellOf(q, known, codes);
}

const practised = { drawn: 0, hits: 0 };
function forgetPractice() {
  Object.assign(practised, { drawn: 0, hits: 0 });
  at('strip').hidden = at('key').hidden = true;
  at('strip').replaceChildren();
  at('practised').textContent = '';
}

async function practise(times) {
  const record = readAll(state.controls);
  if (record === null) return;
  const [q] = state.asked, fits = fitting(q.mechanism), cell = cellFor(q, record);
  let last = null;
  for (let i = 0; i < times; i++) {
    [last] = (await dither.practise(state.announcement, state.asked, record)).parts;
    if (cell === null) continue;
    const hit = fits(last, cell);
    practised.drawn++;
    practised.hits += hit ? 1 : 0;
    const dot = element('span', { className: hit ? '' : 'other', title: hit ? 'fits your answer' : 'does not fit it' });
    at('strip').append(dot);
    if (at('strip').children.length > PRACTICE) at('strip').firstChild.remove();
  }
  at('strip').hidden = at('key').hidden = practised.drawn === 0;
  const fitted = cell === null ? 'What you gave is outside what is asked, so no draw can fit it.'
    : `${practised.hits} of ${practised.drawn} practice draws fit your answer (about ${ofHundred(oddsHere().own)} of 100 are expected to).`;
  at('practised').textContent = `${fitted} The last one would have said: ${meaning(q, last)}`;
}

// A report of one question in words: the answers it fits, if they are few.
function meaning(q, payload) {
  const { cells } = q.mechanism, fits = fitting(q.mechanism), many = cells.toLocaleString('en');
  const all = q.rounded ? `the ${many} numbers to which yours may be rounded` : `${many} possible answers`;
  if (fits === null || cells > 4096) return `${bytesOf(payload)} of noise about ${all}.`;
  const textOf = (cell) => quoted(q.rounded ? levelText(attributeOf(q.attributes[0]), cells, cell) : cellText(words, q, cell));
  const found = [];
  for (let cell = 0; cell < cells; cell++) if (fits(payload, cell)) found.push(cell);
  if (q.mechanism.name === 'grr') return `${textOf(found[0])}${q.rounded ? `, one of ${all}` : ''}.`;
  if (!found.length) return `none of ${all}.`;
  return `one of ${found.length} of ${all}: ${found.slice(0, 6).map(textOf).join(', ')}${found.length > 6 ? ` and ${found.length - 6} more` : ''}.`;
}

// Sending. The bytes are shown as the browser sends them.
function send(record) {
  const seen = (address, options = {}) => {
    if (address.endsWith('/reports')) {
      state.sent = true;
      showBytes(options.body);
    }
    return fetch(address, options);
  };
  // A round that began after the form was made may ask something else, or in another way: then nothing is drawn or sent, so that
  // what the page says about questions, odds and bytes is about what is sent.
  const allowed = Object.keys(record), { token, ticket, asked: questions } = state, cap = state.announcement.epsilon;
  return dither.takePart({ url: location.origin, campaign, record, allowed, questions, cap, token, ticket, fetch: seen });
}

function showBytes(body) {
  if (body.length <= 60) return;
  const payload = body.subarray(64), [q] = state.asked;
  at('bytes').textContent = spelt(body);
  at('said').textContent = state.asked.length === 1 ? meaning(q, payload)
    : `${bytesOf(payload)} of noise${q ? ` about ${state.asked.length} questions` : ''}.`;
  at('left').hidden = false;
}

// Why the collector refused a report for good, in the books and as the encoder's code -> the sentence for it.
const ENDS = { 'round-closed': 'late', conflict: 'conflict', 'unknown-token': 'token-unknown' };
const REFUSED = { closed: 'late', answered: 'conflict', token: 'token-unknown' };
// A code of the encoder's, of a result after which nothing was sent, or of an error -> the sentence for it.
const RESULTS = { 'not-open': 'between', 'used-elsewhere': 'used' };
const ERRORS = { 'no-campaign': 'unknown', token: 'other-token', invalid: 'broken' };

const endOf = (result, code) => {
  if (result === 'answered') return 'conflict';
  return result === 'refused' ? REFUSED[code] ?? 'invalid' : RESULTS[code] ?? code;
};

// `unasked`: nobody has pressed anything, so nothing on the page moves.
async function deliver(record, unasked = false) {
  if (preview) { at('questions').hidden = true; at('state').hidden = false; return say('preview'); }
  clearTimeout(again);
  for (const button of page.querySelectorAll('button')) button.disabled = true;
  if (!unasked) {
    at('state').hidden = false;
    at('state').className = 'said';
    at('state').textContent = 'Sending…';
  }
  try {
    const { result, code, receipt, comeBack: after, retryAfter } = await send(record);
    if (result === 'acknowledged') showReceipt(receipt);
    else if (result === 'waiting') showWaiting(state.asked, retryAfter);
    else {
      at('questions').hidden = true;
      at('waiting').hidden = true;
      say(endOf(result, code), result === 'not-asked' ? comeBack(after) : '');
      if (at('state').dataset.kind === 'between') lookAgain(SOON);
    }
  } catch (error) {
    const code = error.code ?? 'invalid';
    if (code === 'offline' && !at('waiting').hidden) showWaiting(state.asked, error.retryAfter);
    else if (code === 'offline') say('offline', 'Look at your connection and press the button again.');
    else if (code === 'not-allowed') await askAgain();
    else say(ERRORS[code] ?? code);
  } finally {
    for (const button of page.querySelectorAll('button')) button.disabled = false;
    if (!unasked) at('state').scrollIntoView({ block: 'nearest' });
  }
}

async function askAgain() {
  at('questions').hidden = at('waiting').hidden = true;
  await begin();
  if (at('questions').hidden) return;
  at('state').hidden = false;
  say('asked-again');
}

function showWaiting(asked, retryAfter = dither.retryPause()) {
  state.asked = asked;
  at('questions').hidden = true;
  at('waiting').hidden = false;
  at('state').hidden = false;
  at('state').className = 'said';
  at('state').dataset.kind = 'waiting';
  at('state').replaceChildren(
    element('p', {}, element('strong', {}, 'Your answer is kept here and not yet acknowledged.')),
    element('p', {}, 'The connection broke, or the collector is busy; the answer may or may not have arrived. Its noise is drawn once and for all: sending again sends the same bytes, and they count once. While this page is open it tries now and then by itself.'),
  );
  clearTimeout(again);
  again = setTimeout(sendAgain, 1000 * retryAfter);
}

const sendAgain = () => { if (at('state').dataset.kind === 'waiting') deliver({}, true); };

function showReceipt(receipt) {
  for (const part of ['questions', 'waiting']) at(part).hidden = true;
  at('state').hidden = false;
  at('state').className = 'done';
  at('state').dataset.kind = 'answered';
  at('state').replaceChildren(
    element('p', {}, element('strong', {}, 'You have answered. Sent and stored: thank you.')),
    element('p', {}, 'Your receipt, the number under which the randomised answer is stored; it tells nothing about it:'),
    element('p', { className: 'bytes', id: 'receipt' }, receipt),
    element('p', { className: 'help' }, 'Coming back shows this receipt again. There is no second draw: one answer is all that is asked of you.'),
  );
}

at('form').addEventListener('submit', (event) => {
  event.preventDefault();
  event.stopPropagation();
  const record = readAll(state.controls);
  if (record !== null) deliver(record);
});
at('once').addEventListener('click', () => practise(1));
at('often').addEventListener('click', () => practise(20));
at('resend').addEventListener('click', () => deliver({}));
window.addEventListener('hashchange', () => location.reload());
// What may have changed meanwhile is looked at again as soon as somebody looks here, and now and then without.
const lookNow = () => { if (!document.hidden && ['offline', 'draft', 'later', 'between'].includes(at('state').dataset.kind)) begin(); };
window.addEventListener('online', lookNow);
window.addEventListener('online', sendAgain);
document.addEventListener('visibilitychange', lookNow);
begin();
