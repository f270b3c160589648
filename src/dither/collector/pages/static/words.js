// Texts of scripts in the page's language, and what a question, an answer and a report mean. Nothing here draws noise or sends anything.

let messages = {}, locale = 'en', rules = new Intl.PluralRules('en');
const FORMS = ['zero', 'one', 'two', 'few', 'many', 'other']; // the order of a catalogue with six forms; others have one and other

/** Write in this language from now on, with these translations by English text. */
export function speak(code, translations) {
  [messages, locale, rules] = [translations, `${code}-u-nu-latn`, new Intl.PluralRules(code)];
}

const fill = (text, values) => text.replace(/%\((\w+)\)s|%%/g, (whole, name) => (name ? values[name] : '%'));
export const _ = (text, values = {}) => fill(messages[text] ?? text, values);
/** A text that depends on a number, which is %(num)s in it. */
export function ngettext(one, several, number, values = {}) {
  const forms = messages[one] ?? [one, several], kind = rules.select(number);
  const text = forms.length === 6 ? forms[FORMS.indexOf(kind)] : forms[kind === 'one' ? 0 : forms.length - 1];
  return fill(text, { num: decimal(number), ...values });
}
export const decimal = (number) => number.toLocaleString(locale, { maximumSignificantDigits: 15 });
export const moment = (seconds) => new Date(1000 * seconds).toLocaleString(locale, { dateStyle: 'long', timeStyle: 'short' });
const listed = (texts) => new Intl.ListFormat(locale, { type: 'unit' }).format(texts);

const groupsOf = (words, q, name) => ((q.grouped ?? []).includes(name) ? words[name].groups : words[name].labels);

/** What people read for a cell of a question: one answer, or one to each of its attributes. */
export function cellText(words, q, cell) {
  const parts = [];
  for (const name of [...q.attributes].reverse()) {
    const texts = groupsOf(words, q, name);
    parts.unshift(texts[cell % texts.length]);
    cell = Math.floor(cell / texts.length);
  }
  return parts.join(' · ');
}

/** A number of an attribute, with its unit. */
export function numberText(attribute, number) {
  const plain = Number.isInteger(number) ? number : Number(number.toPrecision(6));
  const text = Math.abs(plain) < 1e15 ? decimal(plain) : String(plain);
  return attribute.kind === 'duration' ? `${text} s` : text;
}

/** What people read for a level: one of the evenly spaced numbers to which a number is rounded at random. */
export const levelText = ({ edges, ...rest }, levels, level) =>
  numberText(rest, edges[0] + (level * (edges.at(-1) - edges[0])) / (levels - 1));

/** How a number is rounded before noise is added. */
export function roundingText(attribute, levels) {
  const values = { first: levelText(attribute, levels, 0), last: levelText(attribute, levels, levels - 1) };
  if (levels === 2) return _('Before noise is added, your number is rounded at random to %(first)s or %(last)s; the nearer one is more likely.', values);
  values.apart = numberText(attribute, (attribute.edges.at(-1) - attribute.edges[0]) / (levels - 1));
  return ngettext('Before noise is added, your number is rounded at random to one of %(num)s evenly spaced numbers from %(first)s to %(last)s, %(apart)s apart.',
    'Before noise is added, your number is rounded at random to one of %(num)s evenly spaced numbers from %(first)s to %(last)s, %(apart)s apart.', levels, values);
}

/** A report of one question in words: the answers to which it points, if they are few. */
export function meaning(words, attribute, q, payload, fits) {
  const { cells, name } = q.mechanism, size = bytesOf(payload);
  if (fits === null || cells > 4096) return _('%(bytes)s of noise about %(answers)s.', { bytes: size, answers: possible(cells) });
  const textOf = (cell) => quoted(q.rounded ? levelText(attribute, cells, cell) : cellText(words, q, cell)), found = [];
  for (let cell = 0; cell < cells; cell++) if (fits(payload, cell)) found.push(cell);
  if (!found.length) return _('It points to none of %(answers)s.', { answers: possible(cells) });
  const shown = listed(found.slice(0, 6).map(textOf)), values = { shown, answers: possible(cells) };
  if (name === 'grr') return _('It points to %(shown)s.', values);
  if (found.length <= 6) return _('It points to these of %(answers)s: %(shown)s.', values);
  return ngettext('It points to these of %(answers)s: %(shown)s and %(num)s more.', 'It points to these of %(answers)s: %(shown)s and %(num)s more.', found.length - 6, values);
}
const possible = (cells) => ngettext('%(num)s possible answer', '%(num)s possible answers', cells);

/** Words of a curator in a sentence of ours: the sentence goes on in its own direction. */
export const quoted = (text) => _('“%(text)s”', { text: `\u2068${text}\u2069` });

/** How much a report is. */
export const bytesOf = (payload) => ngettext('%(num)s byte', '%(num)s bytes', payload.length);

/** An element with properties, data and children; text always as text. */
export function element(tag, given = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === false) continue;
    if (key in made && !['list', 'form'].includes(key)) made[key] = value; else made.setAttribute(key, value === true ? '' : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** A grid of a hundred people of whom so many are filled; the sentence beside it says how many. */
export function hundred(share) {
  const filled = Math.round(100 * share), people = Array.from({ length: 100 }, (_, i) => element('span', { className: i < filled ? 'same' : '' }));
  return element('div', { className: 'people', 'aria-hidden': 'true' }, ...people);
}

/** A share as people say it: a whole number of a hundred, or "fewer than 1". */
export function ofHundred(share) {
  const rounded = Math.round(100 * share);
  if (share > 0 && rounded === 0) return _('fewer than 1');
  return share < 1 && rounded === 100 ? _('more than 99') : decimal(rounded);
}

/** Bytes in base 16, in groups that can be read out. */
export const spelt = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('').replace(/(.{8})(?=.)/g, '$1 ');
