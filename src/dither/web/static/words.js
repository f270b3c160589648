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
