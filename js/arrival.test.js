// Whoever arrives is asked, once in a campaign; every refusal has a code; practice and odds touch nothing.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import * as dither from './dither.js';
import { CAMPAIGN, announce, collector, part, problem, shelf } from './small_collector.js';

const { fromHex, toHex } = dither;
const arrival = (change = {}, more = {}) => ({ ...announce(change), assignment: 'arrival', ...more });
const tokenOf = (n) => toHex(new Uint8Array(32).fill(n + 1));
const codes = async (work) => { try { return (await work()).code; } catch (error) { return error.code; } };

test('by arrival everybody is asked, and answers one round of the campaign', async () => {
  const first = arrival({ population: 0.05 }), second = arrival({ round: 1, population: 0.95, shares: [0, 1, 0] }, { start: 0.05 });
  for (let n = 0; n < 20; n++) {
    const storage = shelf(), token = tokenOf(n), { fetch, bodies } = collector(first);
    const came = await part(fetch, storage, { token, cap: 9 });
    const receipt = toHex(await dither.reportId(fromHex(token), fromHex(CAMPAIGN), null));
    assert.deepEqual([came.result, came.code, came.receipt], ['acknowledged', null, receipt]);
    for (const later of [second, arrival(null), arrival(null, { state: 'collected' })]) {
      const next = collector(later);
      assert.deepEqual(await part(next.fetch, storage, { token, cap: 9 }), { ...came, outside: [] });
      assert.equal(next.bodies.length, 0, 'although the cap would allow a second answer');
    }
    assert.equal(bodies.length, 1);
  }
});

test('a campaign that asks whoever arrives cannot ask again by token', async () => {
  const storage = shelf();
  await part(collector(arrival()).fetch, storage, { cap: 9 });
  for (const change of [{ round: 1, shares: [0, 1, 0] }, {}]) {
    const next = collector(announce(change));
    await assert.rejects(() => part(next.fetch, storage, { cap: 9 }), (error) => error.code === 'changed' && /how it asks/.test(error.message));
    assert.equal(next.bodies.length, 0);
  }
  const books = JSON.parse(storage.getItem('dither:device')); // as an earlier version kept them
  delete books.campaigns[CAMPAIGN].assignment;
  storage.setItem('dither:device', JSON.stringify(books));
  assert.equal((await part(collector(arrival()).fetch, storage, { cap: 9 })).result, 'acknowledged');
  assert.equal(JSON.parse(storage.getItem('dither:device')).campaigns[CAMPAIGN].assignment, 'arrival');
});

test('what waits from an earlier round is sent again with the same bytes', async () => {
  const storage = shelf(), first = collector(arrival({ population: 0.05 }), 0);
  assert.equal((await part(first.fetch, storage)).code, 'offline');
  const next = collector(arrival({ round: 1, population: 0.95, shares: [0, 1, 0] }, { start: 0.05 }));
  assert.equal((await part(next.fetch, storage)).result, 'acknowledged');
  assert.deepEqual(next.bodies, first.bodies);
  assert.equal((await part(next.fetch, storage)).result, 'acknowledged');
  assert.equal(next.bodies.length, 1);
});

test('the collector says that this participant has answered', async () => {
  const storage = shelf(), { fetch, bodies } = collector(arrival({ round: 1 }), problem(409, 'answered'));
  for (let i = 0; i < 2; i++) {
    const { result, code, receipt } = await part(fetch, storage);
    assert.deepEqual([result, code, receipt.length], ['answered', 'answered', 64]);
  }
  assert.equal(bodies.length, 1);
});

test('who is not asked by token learns whether and when to come back', async () => {
  const early = { ...announce({ population: 1e-9 }), round_closes: 1900000000 };
  const { result, code, comeBack } = await part(collector(early).fetch, shelf());
  assert.deepEqual([result, code, comeBack], ['not-asked', 'not-asked', 1900000000]);
  const over = await part(collector({ ...announce({ population: 1e-9 }), start: 1 - 1e-6, round_closes: 1900000000 }).fetch, shelf());
  assert.deepEqual([over.result, over.comeBack], ['not-asked', null]);
});

test('every end has a code', async () => {
  const at = (announced, ...answers) => (more = {}, storage = shelf()) => codes(() => part(collector(announced, ...answers).fetch, storage, more));
  assert.equal(await at(announce())(), null);
  assert.equal(await at(announce(null))(), 'not-open');
  assert.equal(await at({ ...announce(null), state: 'finalised' })(), 'closed');
  assert.equal(await at(() => new Response('no', { status: 404 }))(), 'no-campaign');
  assert.equal(await at(() => new Response('no', { status: 502 }))(), 'offline');
  assert.equal(await codes(() => part(async () => { throw new TypeError('offline'); }, shelf())), 'offline');
  assert.equal(await at(announce())({ cap: 0.1 }), 'cap');
  assert.equal(await at(announce())({ capTotal: 0.1 }), 'cap');
  assert.equal(await at(announce())({ allowed: ['b'] }), 'not-allowed');
  assert.equal(await at(announce())({ schemaFingerprint: '0'.repeat(64) }), 'changed');
  assert.equal(await at(announce())({ record: 5 }), 'invalid');
  for (const [cause, code] of [['conflict', 'answered'], ['round-closed', 'closed'], ['not-this-round', 'not-asked'], ['unknown-token', 'token'], ['malformed', 'invalid']]) {
    const storage = shelf(), come = at(announce(), problem(409, cause));
    assert.equal(await come({}, storage), code);
    assert.equal(await at(announce())({}, storage), code, 'and at the next visit');
  }
  const storage = shelf();
  await at(announce())({}, storage);
  assert.equal(await at(announce())({ url: 'https://evil.example' }, storage), 'moved');
  assert.equal(await at(announce())({ token: tokenOf(3) }, storage), 'token');
  assert.equal(await at(announce())({}, { ...shelf(), setItem() {} }), 'storage');
});

test('what will be asked is known before, and is what is asked', async () => {
  const a = arrival({ shares: [0.3, 0.3, 0.4] }), seen = new Set();
  for (let n = 0; n < 30; n++) {
    const token = tokenOf(n), { asked, question, questions, attributes } = await dither.chosen(a, fromHex(token));
    assert.equal(asked, true);
    seen.add(question);
    const { fetch, bodies } = collector(a);
    await part(fetch, shelf(), { token });
    assert.equal(parseInt(bodies[0].slice(56 + 64, 56 + 66), 16), question);
    assert.deepEqual(questions[0].attributes, attributes);
  }
  assert.deepEqual([...seen].sort(), [0, 1, 2]);
  const none = await dither.chosen(arrival(null), fromHex(tokenOf(1)));
  assert.deepEqual(none, { asked: false, later: false, question: null, questions: [], attributes: [] });
});

test('practice is drawn anew each time, with the odds that are told, and touches no books', async () => {
  const a = announce(), { questions } = await dither.chosen(a, fromHex(tokenOf(1))), { own } = dither.odds(questions[0].mechanism);
  let same = 0;
  const draws = 4000, storage = globalThis.localStorage;
  for (let i = 0; i < draws; i++) {
    const { parts, outside } = await dither.practise(a, questions, { a: 'y' });
    assert.deepEqual(outside, []);
    same += parts[0][0] === 1 ? 1 : 0;
  }
  assert.equal(own, 0.5);
  assert.ok(Math.abs(same / draws - own) < 5 * Math.sqrt(own * (1 - own) / draws), `${same} of ${draws}`);
  assert.equal(globalThis.localStorage, storage);
  assert.deepEqual((await dither.practise(a, questions, {})).outside, ['a']);
});

test('no odds where a report speaks for no single answer, and none of what is no mechanism', () => {
  assert.equal(dither.odds({ name: 'square-wave', cells: 8, width: 3, base: 2 ** 20, threshold_bits: 32 }), null);
  assert.throws(() => dither.odds({ name: 'grr', cells: 3, other: 2 ** 32, threshold_bits: 32 }), dither.Refused);
});

test('the types name what there is, and the package has what it names', () => {
  const read = (name) => readFileSync(new URL(name, import.meta.url), 'utf8');
  const typed = [...read('./dither.d.ts').matchAll(/^export (?:class|function) (\w+)/gm)].map((found) => found[1]);
  assert.deepEqual(typed.sort(), Object.keys(dither).sort());
  const described = JSON.parse(read('./package.json'));
  assert.notEqual(described.private, true);
  for (const file of [...described.files, described.main, described.types]) assert.ok(read(file.replace(/^(\.\/)?/, './')).length > 0);
  assert.equal(described.exports['.'].types, described.types);
});
