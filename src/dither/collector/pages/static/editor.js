// The editor of a draft: cards are changed in the page, and the draft is saved while it is typed.
// Without this script every button sends the whole form, which the collector saves and shows again.

const form = document.getElementById('new'), status = document.getElementById('saving');
const WAIT = 1500, AGAIN = 5000; // milliseconds: after the last key, and after a failure
const LAST = 64000; // bytes that a browser still sends while a page is left

// Cards: questions (a0-name, a1-name, ...) and recipients (c0-name, ...).

const WITH_NUMBER = ['id', 'name', 'for', 'value', 'aria-describedby'];

function renumber(list) {
  const letter = list.dataset.list, field = new RegExp(`^${letter}\\d+-`), action = new RegExp(`-${letter}\\d+$`);
  [...list.children].forEach((card, i) => {
    for (const part of card.querySelectorAll('*')) {
      for (const name of WITH_NUMBER) {
        if (name === 'value' && part.name !== 'do') continue;
        const text = part.getAttribute(name);
        if (text !== null) part.setAttribute(name, text.replace(field, `${letter}${i}-`).replace(action, `-${letter}${i}`));
      }
      if (part.dataset.number !== undefined) part.textContent = i + 1;
    }
  });
}

function copyOf(card) {
  const copy = card.cloneNode(true), now = copy.querySelectorAll('input, select, textarea');
  card.querySelectorAll('input, select, textarea').forEach((field, i) => { now[i].value = field.value; now[i].checked = field.checked; });
  return copy;
}

const firstField = (card) => card?.querySelector('input, select, textarea');

function change(list, what, at) {
  const cards = list.children, card = cards[at], word = list.dataset.what;
  const blank = () => document.querySelector(`template[data-blank=${list.dataset.list}]`).content.firstElementChild.cloneNode(true);
  let message = '', undo = null, focus = null;
  if (what === 'add') { list.append(blank()); focus = firstField(list.lastElementChild); message = `${word} ${cards.length} is added.`; }
  if (what === 'copy') { card.after(copyOf(card)); focus = firstField(cards[at + 1]); message = `${word} ${at + 2} is a copy of ${at + 1}.`; }
  if (what === 'up' && at > 0) { cards[at - 1].before(card); message = `${word} ${at + 1} is ${at} now.`; }
  if (what === 'down' && at + 1 < cards.length) { cards[at + 1].after(card); message = `${word} ${at + 1} is ${at + 2} now.`; }
  if (what === 'remove') {
    card.remove();
    if (!cards.length) list.append(blank());
    focus = firstField(cards[Math.min(at, cards.length - 1)]);
    message = `${word} ${at + 1} is removed.`;
    undo = () => { list.insertBefore(card, cards[at] ?? null); renumber(list); firstField(card).focus(); changed(); };
  }
  renumber(list);
  focus?.focus();
  if (what === 'up' || what === 'down') card.querySelector(`button[value^=${what}]`).focus();
  changed();
  say(message, undo && ['Undo', undo]);
}

form?.addEventListener('click', (event) => {
  const found = /^(add|up|down|copy|remove)-([ac])(\d*)$/.exec(event.target.closest('button[name=do]')?.value ?? '');
  if (!found) return;
  event.preventDefault();
  change(form.querySelector(`[data-list=${found[2]}]`), found[1], Number(found[3]));
});

// Saving. What is typed is also kept in this window until the collector has it, so that it outlives a session that ends.

const key = () => `dither${new URL(form.action).pathname}`;
const typed = () => [...new FormData(form)].filter(([name, value]) => typeof value === 'string' && name !== 'csrf' && name !== 'version');
const text = () => JSON.stringify(typed());
let saved = form && text(), waiting = null, underWay = null;

function say(message, more = null) {
  status.replaceChildren(message);
  if (!more) return;
  const button = document.createElement(typeof more[1] === 'string' ? 'a' : 'button');
  button.textContent = more[0];
  if (button.href !== undefined) button.href = more[1];
  else Object.assign(button, { type: 'button', className: 'link', onclick: () => { button.remove(); more[1](); } });
  status.append(' ', button);
}

function changed() {
  if (text() === saved) return;
  sessionStorage.setItem(key(), JSON.stringify([form.version.value, text()]));
  clearTimeout(waiting);
  waiting = setTimeout(save, WAIT);
}

// Whether everything is saved; one request at a time.
async function save(leaving = false) {
  clearTimeout(waiting);
  await underWay;
  if (text() === saved) return true;
  underWay = send(leaving).catch(() => {
    say('Not saved: the collector cannot be reached. This page tries again.');
    waiting = setTimeout(save, AGAIN);
    return false;
  });
  return underWay;
}

function post(fields, version, keepalive = false) {
  const body = new URLSearchParams([...JSON.parse(fields), ['csrf', form.csrf.value], ['version', version]]);
  return fetch(form.action, { method: 'POST', body, headers: { accept: 'application/json' }, keepalive });
}

async function send(leaving, again = true) {
  const sent = text(), answer = await post(sent, form.version.value, leaving && sent.length < LAST);
  if (answer.status === 401 || answer.status === 403) {
    // Signed out, or signed in again in another window: its token is in the page as it is now.
    const page = again ? new DOMParser().parseFromString(await (await fetch(form.action)).text(), 'text/html') : null;
    const token = page?.querySelector('#new input[name=csrf]')?.value;
    if (token) { form.csrf.value = token; return send(leaving, false); }
    say('Not saved: you are signed out. What you typed is kept in this window.', ['Sign in again', new URL(form.action).pathname]);
    return false;
  }
  const result = answer.status < 500 && await answer.json();
  if (!answer.ok) { say(`Not saved. ${result.fault ?? 'The collector failed.'}`); return false; }
  sessionStorage.removeItem(key());
  if (result.copied) form.action = `/console/drafts/${result.draft}`;
  form.version.value = result.version;
  for (const field of document.querySelectorAll('input[name=draft]')) field.value = result.draft;
  history.replaceState(null, '', `/console/drafts/${result.draft}`);
  saved = sent;
  if (text() !== saved) changed();
  say(result.copied ? 'Another person changed this draft; yours goes on as a copy.' : 'Saved as a draft.');
  return true;
}

form?.addEventListener('input', changed);
document.querySelectorAll('[form=new]').forEach((field) => field.addEventListener('input', () => form.dispatchEvent(new Event('input'))));
addEventListener('visibilitychange', () => { if (form && document.hidden) save(true); });

// A button is pressed once all is saved, so that nothing is lost if the session has ended.
let passed = false;
document.addEventListener('submit', async (event) => {
  if (passed || !form || event.target.getAttribute('method') !== 'post') return;
  if (event.target !== form && !event.target.draft) return;
  event.preventDefault();
  const { target, submitter } = event;
  if (!await save()) return;
  passed = true;
  setTimeout(() => target.requestSubmit(submitter)); // while a form is submitted it cannot be submitted again
}, true);

// What this window kept when the session ended: save it, and show it.
async function restore() {
  const [version, kept] = JSON.parse(sessionStorage.getItem(key()) ?? '[]');
  if (!kept || kept === saved) return;
  const answer = await post(kept, version);
  if (!answer.ok) return;
  sessionStorage.removeItem(key());
  location.replace(`/console/drafts/${(await answer.json()).draft}`);
}
if (form) restore();

// Terms that depend on epsilon, and the planner's values.

function showTerms() {
  for (const part of form.querySelectorAll('[data-above]')) part.hidden = !(Number(form.epsilon.value) > Number(part.dataset.above));
}
form?.addEventListener('input', showTerms);
if (form) showTerms();

document.addEventListener('click', (event) => {
  const [name, value] = (event.target.dataset?.set ?? '').split('=');
  if (!value) return;
  form[name].value = value;
  form.dispatchEvent(new Event('input'));
});
