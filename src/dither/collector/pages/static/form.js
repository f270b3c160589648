// The form of a participant: one control for each attribute that is asked, made from the schema.
//
// The collector chooses the schema, so a form that refused values outside it would tell them by its silence (decision 16).
// A control refuses an empty field and what is no number or date at all; it never refuses by what the schema lists.

import { codeOf, levelOf } from './dither.js';
import { element, numberText, quoted, roundingText } from './words.js';

const RADIOS = 8, OPTIONS = 300;
const NONE = 'None of these';

/** A control for an attribute: {box, read()}, where read gives {value} or {fault}; `levels` if its number is rounded to so many. */
export function control(attribute, words, at, levels = null) {
  const own = words[attribute.name], id = `a${at}`, instead = sentInstead(attribute, own);
  if (['categorical', 'ordinal', 'boolean'].includes(attribute.kind)) {
    const values = attribute.kind === 'boolean' ? [false, true] : attribute.values;
    const offered = [...values.entries()].map(([code, value]) => ({ value, text: own.labels[code], note: '' }));
    if (attribute.missing) offered.push({ value: undefined, text: own.labels[values.length], note: '' });
    if (offered.length > OPTIONS) return search(own, id, offered, instead);
    const make = offered.length <= RADIOS ? radios : menu;
    return make(own, id, [...offered, { value: undefined, text: NONE, note: instead }]);
  }
  return line(attribute, own, id, instead, levels);
}

const sentInstead = (attribute, own) => 'Please send all the same, so that silence tells nothing about you: your device then randomises '
  + `${attribute.missing ? quoted(own.labels.at(-1)) : 'an answer picked at random'} instead.`;

const helpOf = (own, id) => (own.help ? element('p', { className: 'help', id: `${id}-help`, dir: 'auto' }, own.help) : null);
const faultOf = (id) => element('p', { className: 'fault', id: `${id}-fault`, hidden: true });
const noteOf = (id, text = '') => element('p', { className: 'help', id: `${id}-note`, dir: 'auto', 'aria-live': 'polite' }, text);
const describe = (own, id) => [own.help ? `${id}-help` : '', `${id}-note`, `${id}-fault`].filter(Boolean).join(' ');
// The same words again would be read out again.
const tell = (note, text) => { if (note.textContent !== text) note.textContent = text; };

function tickBox(id, text) {
  const input = element('input', { type: 'checkbox', id: `${id}-none` });
  return { input, label: element('label', { className: 'check' }, input, element('span', { dir: 'auto' }, text)) };
}

function radios(own, id, offered) {
  const choices = element('div', { className: 'choices' }), note = noteOf(id);
  const boxes = offered.map(({ text }, i) => {
    const input = element('input', { type: 'radio', name: id, id: `${id}-${i}`, value: String(i) });
    choices.append(element('label', {}, input, element('span', { dir: 'auto' }, text)));
    return input;
  });
  const chosen = () => offered[boxes.findIndex((input) => input.checked)];
  choices.addEventListener('input', () => tell(note, chosen().note));
  const box = element('fieldset', { className: 'field', id, dir: 'auto', 'aria-describedby': describe(own, id) },
    element('legend', {}, own.question), helpOf(own, id), choices, note, faultOf(id));
  return { box, read: () => (chosen() ? { value: chosen().value } : { fault: 'Choose one.' }) };
}

function menu(own, id, offered) {
  const select = element('select', { id, 'aria-describedby': describe(own, id) }, element('option', { value: '' }, 'Choose…')), note = noteOf(id);
  offered.forEach(({ text }, i) => select.append(element('option', { value: String(i) }, text)));
  const chosen = () => (select.value === '' ? undefined : offered[Number(select.value)]);
  select.addEventListener('input', () => tell(note, chosen()?.note ?? ''));
  return field(own, id, select, () => (chosen() ? { value: chosen().value } : { fault: 'Choose one.' }), note);
}

// What is typed is the answer written exactly so; else the only one that differs in nothing but case and space around it.
function finder(offered) {
  const exact = new Map(), folded = new Map(), fold = (text) => text.trim().toLowerCase();
  for (const { text, value } of offered) {
    if (exact.has(text)) continue;
    exact.set(text, { value });
    folded.set(fold(text), folded.has(fold(text)) ? undefined : { value });
  }
  return (typed) => exact.get(typed) ?? folded.get(fold(typed));
}

function search(own, id, offered, instead) {
  const list = element('datalist', { id: `${id}-list` }), find = finder(offered);
  for (const { text } of offered.slice(0, 2000)) list.append(element('option', { value: text }));
  const input = element('input', { type: 'text', id, list: `${id}-list`, autocomplete: 'off', 'aria-describedby': describe(own, id) });
  const none = tickBox(id, NONE), note = noteOf(id);
  const look = () => {
    input.disabled = none.input.checked;
    if (none.input.checked) tell(note, instead);
    else if (input.value === '' || find(input.value)) tell(note, '');
    else tell(note, `The list has no such answer. If yours is in it, choose it there. ${instead}`);
  };
  const read = () => {
    if (none.input.checked) return { value: undefined };
    return input.value === '' ? { fault: `Type your answer, or tick “${NONE}”.` } : find(input.value) ?? { value: undefined };
  };
  for (const one of [input, none.input]) one.addEventListener('input', look);
  return field(own, id, input, read, list, none.label, note);
}

const TYPES = { numeric: 'number', duration: 'number', date: 'date', datetime: 'datetime-local' };

function line(attribute, own, id, instead, levels) {
  const numbers = TYPES[attribute.kind] === 'number', step = numbers ? attribute.unit ?? 'any' : null;
  const input = element('input', {
    type: TYPES[attribute.kind], id, step, inputMode: numbers ? 'decimal' : undefined, 'aria-describedby': describe(own, id),
  });
  const asked = levels === null ? own.between : `${own.between} ${roundingText(attribute, levels)}`;
  const note = noteOf(id, asked), none = attribute.missing ? tickBox(id, own.labels.at(-1)) : null;
  // null unless it is a number or a date: a browser gives no other text here.
  const value = () => (input.value === '' ? null : numbers ? Number(input.value) : input.value);
  const read = () => {
    if (none?.input.checked) return { value: undefined };
    return value() === null ? { fault: numbers ? 'Give a number.' : 'Give a date.' } : { value: value() };
  };
  const look = () => {
    input.disabled = Boolean(none?.input.checked);
    if (input.disabled || value() === null) tell(note, asked);
    else tell(note, meaning(value()) ?? `${own.between} What you gave is outside what is asked. ${instead}`);
  };
  // What becomes of a value; null if it is outside.
  const meaning = (given) => {
    if (levels !== null) {
      if (levelOf(attribute, given, levels, 0) === null) return null;
      const [low, high] = [attribute.edges[0], attribute.edges.at(-1)], counted = Math.min(Math.max(given, low), high);
      return counted === given ? asked : `Counted as: ${numberText(attribute, counted)}. ${roundingText(attribute, levels)}`;
    }
    const code = codeOf(attribute, given);
    return code === null ? null : `Counted as: ${own.labels[code]}. Nothing finer is used.`;
  };
  for (const one of [input, none?.input]) one?.addEventListener('input', look);
  return field(own, id, input, read, note, none?.label);
}

function field(own, id, input, read, ...after) {
  const box = element('div', { className: 'field', dir: 'auto' }, element('label', { htmlFor: id }, own.question), helpOf(own, id), input, ...after, faultOf(id));
  return { box, read };
}

/** Read all controls: the record by name, or null after saying at each control what is wrong with it. */
export function readAll(controls) {
  const record = Object.create(null); // an attribute may have any name, __proto__ too
  let first = null;
  for (const [name, { box, read }] of controls) {
    const said = read(), fault = box.querySelector('.fault'), input = box.querySelector('input, select');
    fault.hidden = said.fault === undefined;
    fault.textContent = said.fault ?? '';
    input.setAttribute('aria-invalid', String(said.fault !== undefined));
    if (said.fault !== undefined) first ??= input;
    record[name] = said.value;
  }
  first?.focus();
  return first === null ? record : null;
}
