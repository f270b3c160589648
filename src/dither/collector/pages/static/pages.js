// What every page shares, without which each still works: parts that renew themselves, and forms that cannot be sent twice.
// <div data-live="/address"> is replaced by what the address gives, whenever its events say so or, failing that, now and then.

const EVERY = 5000, FASTEST = 500, AGAIN = 1500, SPREAD = 200;
const BUSY = 100; // as many times as long as an answer took, a part waits before it asks again by itself

async function renew(part) {
  const answer = await fetch(part.dataset.live, { headers: { accept: 'text/html' }, cache: 'no-store' });
  if (!answer.ok) return answer.status < 500; // signed out or gone: no use in asking again and again
  const before = document.activeElement?.id, name = (node) => node.querySelector('summary')?.textContent;
  const opened = new Map([...part.querySelectorAll('details')].map((node) => [name(node), node.open]));
  const scrolled = [...part.querySelectorAll('.scroll')].map((node) => [node.scrollLeft, node.scrollTop]);
  part.replaceChildren(...new DOMParser().parseFromString(await answer.text(), 'text/html').body.childNodes);
  for (const node of part.querySelectorAll('details')) node.open = opened.get(name(node)) ?? node.open;
  part.querySelectorAll('.scroll').forEach((node, i) => { [node.scrollLeft, node.scrollTop] = scrolled[i] ?? [0, 0]; });
  if (before && part.querySelector(`#${CSS.escape(before)}`)) document.getElementById(before).focus();
  return false;
}

function keepAlive(part) {
  let waiting = null, last = 0, took = 0;
  const soon = (within = 0) => {
    if (waiting !== null && within) return;
    clearTimeout(waiting);
    waiting = setTimeout(async () => {
      waiting = null;
      last = Date.now();
      const stopped = await renew(part).catch(() => false);
      took = Date.now() - last;
      if (stopped) stop(); else goOn();
    }, Math.max(0, last + FASTEST - Date.now()) + within * Math.random());
  };
  // Something under way of which no event tells: its part says that it wants to be looked at again.
  const goOn = () => { if (part.querySelector('[data-again]')) setTimeout(soon, Math.max(AGAIN, BUSY * took)); };
  goOn();
  let poll = null, events = null;
  const stop = () => { clearTimeout(poll); poll = NaN; events?.close(); };
  const ask = () => { if (!document.hidden) soon(); poll = setTimeout(ask, Math.max(EVERY, BUSY * took)); };
  const start = () => { poll ??= setTimeout(ask, EVERY); };
  if (!part.dataset.events || !('EventSource' in window)) { start(); return; }
  events = new EventSource(part.dataset.events);
  // Where many watch they do not all ask for more in the same moment.
  const others = (event) => Math.max(0, JSON.parse(event.data).watching - 1);
  events.onmessage = (event) => soon(SPREAD * others(event));
  for (const kind of (part.dataset.kinds ?? '').split(' ').filter(Boolean)) {
    events.addEventListener(kind, (event) => soon(Math.min(2000, 2 * others(event))));
  }
  events.onopen = () => { clearTimeout(poll); poll = null; };
  events.onerror = start; // the browser tries again by itself; until then we look now and then
}

for (const part of document.querySelectorAll('[data-live]')) keepAlive(part);

// The collector was not told its public address: the browser knows the one it used.
for (const place of document.querySelectorAll('[data-origin]')) place.textContent = location.origin;

// A form whose part of the page follows what is typed: <form data-preview="/address" data-into="id">.
for (const form of document.querySelectorAll('form[data-preview]')) {
  const into = document.getElementById(form.dataset.into);
  let waiting = null, asked = 0;
  const look = async () => {
    const mine = ++asked, body = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (typeof value === 'string') body.append(name, value);
    into.setAttribute('aria-busy', 'true');
    const answer = await fetch(form.dataset.preview, { method: 'POST', body, headers: { accept: 'text/html' } }).catch(() => null);
    if (mine !== asked) return;
    into.removeAttribute('aria-busy');
    if (answer?.status === 200) into.replaceChildren(...new DOMParser().parseFromString(await answer.text(), 'text/html').body.childNodes);
    for (const button of into.querySelectorAll('[data-set]')) button.hidden = false;
  };
  form.addEventListener('input', () => { clearTimeout(waiting); waiting = setTimeout(look, 600); });
  if (form.dataset.now !== undefined) look();
}

for (const button of document.querySelectorAll('[data-scriptless]')) button.hidden = true;

// Pressed once is enough; a download leaves the page where it is, so that its button comes back.
document.addEventListener('submit', (event) => {
  const form = event.target;
  if (event.defaultPrevented) return;
  setTimeout(() => { for (const button of form.querySelectorAll('button')) button.disabled = true; });
  if (form.dataset.download !== undefined) setTimeout(() => { for (const button of form.querySelectorAll('button')) button.disabled = false; }, 3000);
});
window.addEventListener('pageshow', (event) => {
  if (event.persisted) for (const button of document.querySelectorAll('form button[disabled]')) button.disabled = false;
});

for (const button of document.querySelectorAll('[data-copy]')) {
  button.hidden = false;
  button.addEventListener('click', async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent.trim());
    button.textContent = button.dataset.done ?? 'Copied';
  });
}
