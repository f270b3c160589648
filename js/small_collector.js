// For the tests: a collector of their own, a storage like localStorage, and one participant.
import { createHash } from 'node:crypto';
import * as dither from './dither.js';

const attribute = (name, values) => ({ name, kind: 'categorical', values });
const GRR = { name: 'grr', other: 2 ** 30, threshold_bits: 32 }; // of three cells: epsilon ln 2

export const CAMPAIGN = '000102030405060708090a0b0c0d0e0f';
export const fingerprint = (schema) => createHash('sha256').update(JSON.stringify({
  attributes: schema.attributes.map((a) => Object.fromEntries(Object.entries(a).sort(([x], [y]) => (x < y ? -1 : 1)))),
  format: schema.format,
})).digest('hex');

/** An announcement: one question of epsilon ln 2 about each attribute of three values; `change` is merged into its plan. */
export function announce(change = {}, { campaign = CAMPAIGN, names = ['a', 'b', 'c'], values = ['x', 'y', 'z'] } = {}) {
  const schema = { format: 'dither-schema-1', attributes: names.map((n) => attribute(n, values)) };
  const questions = names.map((n) => ({ attributes: [n], mechanism: { ...GRR, cells: values.length } }));
  const shares = names.map((_, i) => (i === 0 ? 1 : 0));
  return {
    format: 'dither-campaign-1', campaign, name: '', state: 'open', epsilon: 2, participation: 'open', schema,
    schema_fingerprint: fingerprint(schema), start: 0,
    plan: change === null ? null : { round: 0, questions, shares, split: false, population: 1, tally: 'counts', ...change },
  };
}

export function shelf(held = new Map()) {
  return {
    held, getItem: (k) => held.get(k) ?? null, setItem: (k, v) => { held.set(k, String(v)); },
    get length() { return held.size; }, key: (i) => [...held.keys()][i] ?? null,
  };
}

export const stored = () => new Response('{"results":["stored"]}', { status: 201, headers: { 'content-type': 'application/json' } });
export const problem = (status, cause) => new Response(
  JSON.stringify({ type: `urn:dither:problem:${cause}`, title: 'why' }), { status, headers: { 'content-type': 'application/problem+json' } });

// The id of an envelope's one report: campaign at byte 4, round at 20, token at 28.
const idOf = async (body, announced) => {
  const round = announced.assignment === 'arrival' ? null : new DataView(body.buffer, body.byteOffset).getUint32(20, true);
  return dither.toHex(await dither.reportId(body.slice(28, 60), body.slice(4, 20), round));
};

/**
 * Announces what it is told; answers uploads from a list of responses, statuses (0: lost), and then always "stored".
 * Keeps the ids of what it acknowledged for devices that look theirs up, unless `lookups` has another response.
 */
export function collector(announced, ...given) {
  const bodies = [], requests = [], lookups = [], ids = new Set();
  const lookUp = (id) => (lookups.length ? lookups.shift() : new Response(JSON.stringify({ stored: ids.has(id) })));
  const fetch = async (address, options = {}) => {
    requests.push([address, options]);
    if (options.method !== 'POST') return announced instanceof Function ? announced() : new Response(JSON.stringify(announced));
    if (address.endsWith('/lookup')) {
      const answer = lookUp(dither.toHex(options.body));
      if (answer === 0) throw new TypeError('lost');
      return answer;
    }
    bodies.push(dither.toHex(options.body));
    const next = given.length ? given.shift() : stored();
    if (next === 0) throw new TypeError('lost');
    const answer = next instanceof Response ? next : new Response('why', { status: next });
    if (answer.ok) ids.add(await idOf(options.body, announced));
    return answer;
  };
  return { fetch, bodies, requests, lookups, ids };
}

export const part = (fetch, storage, more = {}) => dither.takePart(
  { url: 'https://c.example', campaign: CAMPAIGN, record: { a: 'y', b: 'x', c: 'z' }, cap: 1, storage, fetch, ...more });
export const payload = (body) => parseInt(body.slice(-2), 16);
