// The golden vectors that Python writes, positive and negative: node --test
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import * as dither from './dither.js';

const { fromHex, toHex, Refused } = dither;
const read = (name) => JSON.parse(readFileSync(new URL(`../vectors/${name}.json`, import.meta.url)));
const reports = (c) => c.reports.map((r) => ({ token: fromHex(r.token), question: r.question, payload: fromHex(r.payload) }));
const refuses = (work) => assert.rejects(async () => work(), Refused);
const epsilons = new Map();
const epsilonOf = (m) => {
  const key = JSON.stringify(m);
  if (!epsilons.has(key)) epsilons.set(key, dither.mechanism(m).epsilon());
  return epsilons.get(key);
};

const checks = {
  async randomise(c) {
    const m = dither.mechanism(c.mechanism), random = fromHex(c.random);
    const report = await m.randomise(c.value, (count) => random.subarray(0, count));
    assert.equal(toHex(report), c.report);
    assert.equal(random.length, m.drawBytes);
    m.check(report);
    const epsilon = await epsilonOf(c.mechanism);
    assert.ok(epsilon >= c.epsilon && epsilon <= c.epsilon + 2e-14 * (1 + c.epsilon), `${epsilon} ${c.epsilon}`);
    await refuses(() => m.randomise(c.value, (count) => random.subarray(0, count - 1)));
  },
  'refuse-report': (c) => refuses(() => dither.mechanism(c.mechanism).check(fromHex(c.report))),
  'refuse-value': (c) => refuses(() => dither.mechanism(c.mechanism).randomise(c.value, (n) => new Uint8Array(n))),
  'refuse-mechanism': (c) => refuses(() => dither.mechanism(c.mechanism)),
  envelope: (c) => assert.equal(toHex(dither.encodeEnvelope(fromHex(c.campaign), c.round, reports(c))), c.bytes),
  'refuse-envelope': (c) => refuses(() => dither.encodeEnvelope(fromHex(c.campaign), c.round, reports(c))),
  async assign(c) {
    const token = fromHex(c.token), campaign = fromHex(c.campaign);
    assert.equal(await dither.place(token, campaign), c.place);
    assert.equal(await dither.isAsked(token, campaign, c.start, c.plan.population), c.asked);
    assert.equal(await dither.pick(token, campaign, c.plan), c.question);
    assert.equal(toHex(await dither.reportId(token, campaign, c.plan.round)), c.report_id);
    assert.equal(toHex(await dither.tokenHash(token)), c.token_hash);
    const epsilon = await dither.planEpsilon(c.plan);
    assert.ok(epsilon >= c.epsilon && epsilon < c.epsilon + 1e-13);
  },
  announcement: (c) => dither.checkAnnouncement(c.announcement),
  'refuse-announcement': (c) => refuses(() => dither.checkAnnouncement(c.announcement)),
};

for (const name of ['mechanisms', 'envelopes', 'participation']) {
  test(name, async () => {
    const { format, cases } = read(name);
    assert.equal(format, 'dither-vectors-1');
    assert.ok(cases.filter((c) => c.kind.startsWith('refuse')).length >= cases.length / 4);
    for (const [i, c] of cases.entries()) {
      try { await checks[c.kind](c); } catch (error) { error.message = `case ${i} (${c.kind}): ${error.message}`; throw error; }
    }
  });
}

// A collector of the test's own, and a storage like localStorage.
const base = () => structuredClone(read('participation').cases.find((c) => c.kind === 'announcement').announcement);
const shelf = (held = new Map()) => ({ getItem: (k) => held.get(k) ?? null, setItem: (k, v) => held.set(k, v) });
function collector(announced, ...statuses) {
  const bodies = [];
  const fetch = async (address, options = {}) => {
    if (options.method !== 'POST') return { json: async () => announced };
    bodies.push(toHex(options.body));
    const status = statuses.length ? statuses.shift() : 201;
    if (status === 0) throw new TypeError('lost');
    return { status };
  };
  return { fetch, bodies };
}
const part = (fetch, storage, more = {}) => dither.takePart(
  { url: 'https://c.example', campaign: base().campaign, record: { a: 'y', b: true }, cap: 1, storage, fetch, ...more });

test('a retry sends the same bytes and spends nothing more', async () => {
  const storage = shelf(), { fetch, bodies } = collector(base(), 0, 503, 429, 201);
  const results = [];
  for (let i = 0; i < 5; i++) results.push(await part(fetch, storage));
  assert.deepEqual(results.map((r) => r.result), ['waiting', 'waiting', 'waiting', 'acknowledged', 'acknowledged']);
  assert.equal(bodies.length, 4);
  assert.equal(new Set(bodies).size, 1);
  assert.equal(new Set(results.map((r) => r.spent)).size, 1);
});

test('the books are written before anything is sent', async () => {
  const order = [], storage = { ...shelf(), setItem: () => order.push('kept') }, { fetch } = collector(base());
  await part(async (...x) => { if (x[1]?.method) order.push('sent'); return fetch(...x); }, storage);
  assert.equal(order[0], 'kept');
  assert.equal(order[1], 'sent');
});

test('a plan above the cap, a changed schema and a changed plan are refused', async () => {
  const { fetch, bodies } = collector(base());
  await refuses(() => part(fetch, shelf(), { cap: 0.9 }));
  assert.equal(bodies.length, 0);
  await refuses(() => part(fetch, shelf(), { allowed: [] }));
  const storage = shelf();
  await part(fetch, storage, { allowed: ['a', 'b'] });
  const other = base();
  other.schema.attributes[0].values[2] = 'w';
  await refuses(() => part(collector(other).fetch, storage));
  const changed = base();
  changed.plan.shares = [0.3, 0.4, 0.3];
  await refuses(() => part(collector(changed).fetch, storage));
  const next = base();
  next.plan.round = 1;
  next.plan.shares = [0, 1, 0];
  const first = shelf(), one = base();
  one.plan.shares = [1, 0, 0];
  await part(collector(one).fetch, first);
  await refuses(() => part(collector(next).fetch, first), 'the cap covers all rounds');
});

test('a repeated question gets the same answer, whatever the record says now', async () => {
  const storage = shelf(), rounds = [0, 1].map((round) => {
    const a = base();
    a.plan = { ...a.plan, round, shares: [1, 0, 0] };
    return collector(a);
  });
  await part(rounds[0].fetch, storage);
  const again = await part(rounds[1].fetch, storage, { record: { a: 'z', b: false } });
  assert.equal(again.result, 'acknowledged');
  assert.equal(rounds[0].bodies[0].slice(-2), rounds[1].bodies[0].slice(-2));
  assert.ok(again.spent <= 1);
});

test('records get codes or are refused', () => {
  const schema = { attributes: [
    { name: 'n', kind: 'numeric', edges: [0, 1, 5, 9] }, { name: 'm', kind: 'boolean', missing: true }] };
  for (const [n, code] of [[0, 0], [0.99, 0], [1, 1], [5, 2], [9, 2]]) assert.equal(dither.encodeRecord(schema, { n }).n, code);
  assert.deepEqual(dither.encodeRecord(schema, { n: 1, m: true }), { n: 1, m: 1 });
  assert.equal(dither.encodeRecord(schema, { n: 1 }).m, 2);
  for (const n of [-0.1, 9.1, '1', null, NaN]) assert.throws(() => dither.encodeRecord(schema, { n }), Refused);
});
