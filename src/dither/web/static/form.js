// The form of a participant: one control for each attribute that is asked, made from the schema.

import { codeOf } from './dither.js';
import { element } from './words.js';

const RADIOS = 8, OPTIONS = 300;

/** A control for an attribute: {box, read()}, where read gives {value} or {fault}. */
export function control(attribute, words, at) {
  const own = words[attribute.name], id = `a${at}`;
  if (['categorical', 'ordinal', 'boolean'].includes(attribute.kind)) {
    const values = attribute.kind === 'boolean' ? [false, true] : attribute.values;
    const offered = [...values.entries()].map(([code, value]) => ({ value, text: own.labels[code] }));
    if (attribute.missing) offered.push({ value: undefined, text: own.labels[values.length] });
    if (offered.length <= RADIOS) return radios(own, id, offered);
    return offered.length <= OPTIONS ? menu(own, id, offered) : search(own, id, offered);
  }
  return line(attribute, own, id);
}

const helpOf = (own, id) => (own.help ? element('p', { className: 'help', id: `${id}-help`, dir: 'auto' }, own.help) : null);
const faultOf = (id) => element('p', { className: 'fault', id: `${id}-fault`, hidden: true });
const describe = (own, id, ...more) => [own.help ? `${id}-help` : '', ...more, `${id}-fault`].filter(Boolean).join(' ');

function radios(own, id, offered) {
  const choices = element('div', { className: 'choices' });
  const boxes = offered.map(({ text }, i) => {
    const input = element('input', { type: 'radio', name: id, id: `${id}-${i}`, value: String(i) });
    choices.append(element('label', {}, input, element('span', { dir: 'auto' }, text)));
    return input;
  });
  const box = element('fieldset', { className: 'field', id, dir: 'auto', 'aria-describedby': describe(own, id) },
    element('legend', {}, own.question), helpOf(own, id), choices, faultOf(id));
  return {
    box,
    read() {
      const chosen = boxes.findIndex((input) => input.checked);
      return chosen < 0 ? { fault: 'Choose one.' } : { value: offered[chosen].value };
    },
  };
}

function menu(own, id, offered) {
  const select = element('select', { id, 'aria-describedby': describe(own, id) }, element('option', { value: '' }, 'Choose…'));
  offered.forEach(({ text }, i) => select.append(element('option', { value: String(i) }, text)));
  return field(own, id, select, () => (select.value === '' ? { fault: 'Choose one.' } : { value: offered[Number(select.value)].value }));
}

function search(own, id, offered) {
  const list = element('datalist', { id: `${id}-list` });
  for (const { text } of offered.slice(0, 2000)) list.append(element('option', { value: text }));
  const input = element('input', { type: 'text', id, list: `${id}-list`, autocomplete: 'off', 'aria-describedby': describe(own, id) });
  const byText = new Map(offered.map(({ text, value }) => [text.toLowerCase(), { value }]));
  const read = () => byText.get(input.value.trim().toLowerCase()) ?? { fault: 'Type one of the listed answers, as it is written there.' };
  return field(own, id, input, read, list);
}

const TYPES = { numeric: 'number', duration: 'number', date: 'date', datetime: 'datetime-local' };

function line(attribute, own, id) {
  const [low, high] = own.range, numbers = TYPES[attribute.kind] === 'number';
  const step = !numbers ? null : attribute.unit ?? 'any';
  const input = element('input', {
    type: TYPES[attribute.kind], id, step, min: low, max: high, inputMode: numbers ? 'decimal' : undefined,
    'aria-describedby': describe(own, id, `${id}-bin`),
  });
  const bin = element('p', { className: 'help', id: `${id}-bin`, dir: 'auto', 'aria-live': 'polite' }, own.between);
  const none = attribute.missing ? element('input', { type: 'checkbox', id: `${id}-none` }) : null;
  const value = () => (input.value === '' ? null : numbers ? Number(input.value) : input.value);
  const read = () => {
    if (none?.checked) return { value: undefined };
    if (value() === null) return { fault: numbers ? 'Give a number.' : 'Give a date.' };
    return codeOf(attribute, value()) === null ? { fault: `This is outside what is asked: ${own.between}` } : { value: value() };
  };
  const tell = () => {
    const found = none?.checked || value() === null ? null : codeOf(attribute, value());
    bin.textContent = found === null ? own.between : `Counted as: ${own.labels[found]}. Nothing finer is used.`;
    input.disabled = Boolean(none?.checked);
  };
  input.addEventListener('input', tell);
  none?.addEventListener('input', tell);
  const rather = none === null ? null : element('label', { className: 'check' }, none, element('span', {}, own.labels.at(-1)));
  return field(own, id, input, read, bin, rather);
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
