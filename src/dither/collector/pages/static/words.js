// What a question, an answer and a report mean, in words. Nothing here draws noise or sends anything.

/** What people read for a code of an attribute. */
export const codeText = (words, name, code) => words[name].labels[code];

const widthOf = (words, q, name) => ((q.grouped ?? []).includes(name) ? words[name].groups.length : words[name].labels.length);

/** What people read for a cell of a question: one answer, or one to each of its attributes. */
export function cellText(words, q, cell) {
  const parts = [];
  for (const name of [...q.attributes].reverse()) {
    const width = widthOf(words, q, name), code = cell % width;
    parts.unshift((q.grouped ?? []).includes(name) ? words[name].groups[code] : codeText(words, name, code));
    cell = Math.floor(cell / width);
  }
  return parts.join(' · ');
}

/** A number of an attribute, with its unit. */
export function numberText(attribute, number) {
  const short = Number(number.toPrecision(6)), plain = Number.isInteger(number) ? number : short;
  const text = Math.abs(plain) < 1e15 ? plain.toLocaleString('en', { maximumSignificantDigits: 15 }) : String(short);
  return attribute.kind === 'duration' ? `${text} s` : text;
}

const levelAt = ({ edges }, levels, level) => edges[0] + (level * (edges.at(-1) - edges[0])) / (levels - 1);

/** What people read for a level: one of the evenly spaced numbers to which a number is rounded at random. */
export const levelText = (attribute, levels, level) => numberText(attribute, levelAt(attribute, levels, level));

/** How a number is rounded before noise is added. */
export function roundingText(attribute, levels) {
  const [first, last] = [levelText(attribute, levels, 0), levelText(attribute, levels, levels - 1)];
  if (levels === 2) return `Before noise is added, your number is rounded at random to ${first} or ${last}; the nearer one is more likely.`;
  const apart = numberText(attribute, (attribute.edges.at(-1) - attribute.edges[0]) / (levels - 1));
  return `Before noise is added, your number is rounded at random to one of ${levels.toLocaleString('en')} evenly spaced numbers from ${first} to ${last}, ${apart} apart.`;
}

/** Words of a curator in a sentence of ours: whatever direction they are written in, the sentence goes on in its own. */
export const quoted = (text) => `“\u2068${text}\u2069”`;

/** How much a report is. */
export const bytesOf = (payload) => (payload.length === 1 ? '1 byte' : `${payload.length} bytes`);

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

/** A grid of a hundred people of whom so many are filled. */
export function hundred(share, words) {
  const filled = Math.round(100 * share);
  const list = element('div', { className: 'people', role: 'img', 'aria-label': words });
  for (let i = 0; i < 100; i++) list.append(element('span', { className: i < filled ? 'same' : '' }));
  return list;
}

/** A share as people say it: a whole number of a hundred, or "fewer than one". */
export function ofHundred(share) {
  const rounded = Math.round(100 * share);
  return share > 0 && rounded === 0 ? 'fewer than 1' : share < 1 && rounded === 100 ? 'more than 99' : `${rounded}`;
}

/** Bytes in base 16, in groups that can be read out. */
export const spelt = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('').replace(/(.{8})(?=.)/g, '$1 ');
