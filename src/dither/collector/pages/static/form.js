// The form of a participant: one control for each attribute that is asked, made from the schema.
//
// The collector chooses the schema, so a form that refused values outside it would tell them by its silence (decision 16).
// A control refuses an empty field and what is no number or date at all; it never refuses by what the schema lists.

import { codeOf, levelOf } from './dither.js';
import { _, element, numberText, quoted, roundingText } from './words.js';

const SEARCHED = 12, SHOWN = 60; // answers from which a list can be searched; of which so many are shown at once

/** A control for an attribute: {box, read(), said()}, where read gives {value} or {fault} and said the answer in words; `levels` if its number is rounded to so many. */
export function control(attribute, words, at, levels = null) {
  const own = words[attribute.name], id = `a${at}`;
  const instead = attribute.missing
    ? _('Please send all the same, so that silence tells nothing about you. Your device takes %(answer)s instead and then adds noise.', { answer: quoted(own.labels.at(-1)) })
    : _('Please send all the same, so that silence tells nothing about you. Your device takes an answer picked at random instead and then adds noise.');
  return ['categorical', 'ordinal', 'boolean'].includes(attribute.kind) ? choices(attribute, own, id, instead) : line(attribute, own, id, instead, levels);
}

const helpOf = (own, id) => (own.help ? element('p', { className: 'help', id: `${id}-help`, dir: 'auto' }, own.help) : null);
const faultOf = (id) => element('p', { className: 'fault', id: `${id}-fault`, hidden: true });
const noteOf = (id, text = '') => element('p', { className: 'help', id: `${id}-note`, dir: 'auto', 'aria-live': 'polite' }, text);
const describe = (own, id) => [own.help ? `${id}-help` : '', `${id}-note`, `${id}-fault`].filter(Boolean).join(' ');
// The same words again would be read out again.
const tell = (note, text) => { if (note.textContent !== text) note.textContent = text; };

function choices(attribute, own, id, instead) {
  const values = attribute.kind === 'boolean' ? [false, true] : attribute.values;
  const offered = values.map((value, code) => ({ value, text: own.labels[code], note: '' }));
  if (attribute.missing) offered.push({ value: undefined, text: own.labels[values.length], note: '' });
  const none = { value: undefined, text: _('None of these'), note: instead };
  const list = element('div', { className: 'choices' }), note = noteOf(id), more = element('p', { className: 'help' });
  let chosen;
  const choice = (one, i) => {
    const input = element('input', { type: 'radio', name: id, id: `${id}-${i}`, value: String(i), checked: one === chosen });
    input.addEventListener('input', () => { chosen = one; tell(note, one.note); });
    return element('label', {}, input, element('span', { dir: 'auto' }, one.text));
  };
  const look = (typed) => {
    const wanted = typed.trim().toLowerCase(), found = offered.filter(({ text }) => text.toLowerCase().includes(wanted));
    list.replaceChildren(...found.slice(0, SHOWN).map((one) => choice(one, offered.indexOf(one))), choice(none, offered.length));
    tell(more, found.length > SHOWN ? _('There are more. Type a part of your answer.') : '');
  };
  look('');
  const search = offered.length < SEARCHED ? null : element('input', { type: 'search', id: `${id}-search`, autocomplete: 'off', 'aria-label': _('Search in the answers'), placeholder: _('Search in the answers') });
  search?.addEventListener('input', () => look(search.value));
  search?.addEventListener('keydown', (event) => { if (event.key === 'Enter') event.preventDefault(); });
  const box = element('fieldset', { className: 'field', id, dir: 'auto', 'aria-describedby': describe(own, id) },
    element('legend', {}, own.question), helpOf(own, id), search, list, more, note, faultOf(id));
  return { box, said: () => chosen?.text, read: () => (chosen ? { value: chosen.value } : { fault: _('Choose one.') }) };
}

const TYPES = { numeric: 'number', duration: 'number', date: 'date', datetime: 'datetime-local' };
// A phone's keys for whole numbers and for decimals have no minus.
const keysFor = ({ edges, unit }) => (edges[0] < 0 ? undefined : Number.isInteger(unit) ? 'numeric' : 'decimal');

function line(attribute, own, id, instead, levels) {
  const numbers = TYPES[attribute.kind] === 'number';
  const input = element('input', {
    type: TYPES[attribute.kind], id, autocomplete: 'off', step: numbers ? attribute.unit ?? 'any' : null,
    inputMode: numbers ? keysFor(attribute) : undefined, 'aria-describedby': describe(own, id),
  });
  const asked = levels === null ? own.between : `${own.between} ${roundingText(attribute, levels)}`, note = noteOf(id, asked);
  const tick = attribute.missing ? element('input', { type: 'checkbox', id: `${id}-none` }) : null;
  const absent = tick && element('label', { className: 'check' }, tick, element('span', { dir: 'auto' }, own.labels.at(-1)));
  // null unless it is a number or a date: a browser gives no other text here.
  const value = () => (input.value === '' ? null : numbers ? Number(input.value) : input.value);
  const read = () => {
    if (tick?.checked) return { value: undefined };
    return value() === null ? { fault: numbers ? _('Give a number.') : _('Give a date.') } : { value: value() };
  };
  // What becomes of a value; null if it is outside.
  const counted = (given) => {
    if (levels === null) {
      const code = codeOf(attribute, given);
      return code === null ? null : _('Counted as: %(answer)s. Nothing finer is used.', { answer: own.labels[code] });
    }
    if (levelOf(attribute, given, levels, 0) === null) return null;
    const nearest = Math.min(Math.max(given, attribute.edges[0]), attribute.edges.at(-1));
    return nearest === given ? asked : [_('Counted as: %(answer)s.', { answer: numberText(attribute, nearest) }), roundingText(attribute, levels)].join(' ');
  };
  const look = () => {
    input.disabled = Boolean(tick?.checked);
    if (input.disabled || value() === null) tell(note, asked);
    else tell(note, counted(value()) ?? `${own.between} ${_('What you gave is outside what is asked.')} ${instead}`);
  };
  for (const one of [input, tick]) one?.addEventListener('input', look);
  const box = element('div', { className: 'field', dir: 'auto' }, element('label', { htmlFor: id }, own.question), helpOf(own, id), input, note, absent, faultOf(id));
  return { box, read, said: () => (tick?.checked ? own.labels.at(-1) : numbers ? numberText(attribute, value()) : input.value.replace('T', ' ')) };
}

/** Read a control: {value}, or null after saying at the control what is wrong with it. */
export function readOne({ box, read }) {
  const said = read(), fault = box.querySelector('.fault'), input = box.querySelector('input:not([type=search])');
  fault.hidden = said.fault === undefined;
  fault.textContent = said.fault ?? '';
  input.setAttribute('aria-invalid', String(!fault.hidden));
  if (fault.hidden) return said;
  input.focus();
  return null;
}

/** The record of all controls: an attribute may have any name, __proto__ too. */
export const recordOf = (controls) => Object.assign(Object.create(null), Object.fromEntries(controls.map(({ name, read }) => [name, read().value])));
