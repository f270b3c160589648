// One participant in a browser: answers once, within its caps, keeps silent for no record, believes nobody but the collector.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as dither from './dither.js';
import { CAMPAIGN, announce, collector, fingerprint, part, payload, problem, shelf, stored } from './small_collector.js';

const { Refused, Unreachable, fromHex } = dither;
const refuses = (work, said) => assert.rejects(async () => work(), (e) => e instanceof Refused && (!said || said.test(e.message)));
const zeros = (count) => new Uint8Array(count); // the draw of zero is the truth

test('a retry sends the same bytes and spends nothing more', async () => {
  const storage = shelf(), { fetch, bodies } = collector(announce(), 0, 503, 429, stored());
  const results = [];
  for (let i = 0; i < 5; i++) results.push(await part(fetch, storage));
  assert.deepEqual(results.map((r) => r.result), ['waiting', 'waiting', 'waiting', 'acknowledged', 'acknowledged']);
  assert.equal(bodies.length, 4);
  assert.equal(new Set(bodies).size, 1);
  assert.equal(new Set(results.map((r) => r.spent)).size, 1);
});

const booksOf = (storage) => JSON.parse(storage.getItem('dither:device')).campaigns[CAMPAIGN];

test('the books are written before anything is sent, and a storage that keeps nothing is refused', async () => {
  const order = [], held = shelf(), { fetch, bodies } = collector(announce());
  const storage = { ...held, setItem: (k, v) => { held.setItem(k, v); if (k === 'dither:device') order.push(booksOf(held)); } };
  await part(async (...x) => { if (x[1]?.method === 'POST') order.push('sent'); return fetch(...x); }, storage);
  const at = order.indexOf('sent');
  assert.equal(order[at - 1].answers[0].body, bodies[0]);
  for (const forgets of [{ ...shelf(), setItem() {} }, { ...held, setItem() { throw new Error('full'); } }]) {
    const other = collector(announce({ round: 1 }));
    await assert.rejects(part(other.fetch, forgets));
    assert.equal(other.bodies.length, 0);
  }
});

test('a plan above the cap, a changed schema and a changed plan are refused', async () => {
  const { fetch, bodies } = collector(announce());
  await refuses(() => part(fetch, shelf(), { cap: 0.5 }), /cap/);
  await refuses(() => part(fetch, shelf(), { allowed: ['b', 'c'] }), /not allowed/);
  assert.equal(bodies.length, 0);
  const storage = shelf();
  await part(fetch, storage, { allowed: ['a'] });
  await refuses(() => part(collector(announce({}, { values: ['x', 'y', 'w'] })).fetch, storage), /schema/);
  await refuses(() => part(collector(announce({ shares: [0, 1, 0] })).fetch, storage), /plan has changed/);
  await refuses(() => part(collector(announce({ round: 1, shares: [0, 1, 0] })).fetch, storage), /cap/);
});

test('a cap lowered later counts, and one raised later does not', async () => {
  const storage = shelf();
  await part(collector(announce()).fetch, storage, { cap: 4 });
  const next = collector(announce({ round: 1, shares: [0, 1, 0] }));
  await refuses(() => part(next.fetch, storage, { cap: 1 }), /cap/);
  await refuses(() => part(next.fetch, storage, { cap: 4 }), /cap/);
  assert.equal(next.bodies.length, 0);
});

test('a repeated question gets the same answer, whatever the record says now', async () => {
  const storage = shelf(), [one, two] = [0, 1].map((round) => collector(announce({ round })));
  await part(one.fetch, storage);
  const again = await part(two.fetch, storage, { record: { a: 'z' }, cap: 0.1 });
  assert.equal(again.result, 'acknowledged');
  assert.equal(payload(one.bodies[0]), payload(two.bodies[0]));
  assert.ok(again.spent <= 0.7);
});

test('the token is drawn once and kept from the first look on', async () => {
  const token = (storage) => booksOf(storage).token;
  for (const first of [announce(null), announce({ population: 1e-12 }), announce()]) {
    const storage = shelf(), seen = new Set();
    for (let i = 0; i < 3; i++) {
      const taking = part(collector(first).fetch, storage, { allowed: [] });
      if (first.plan?.population === 1) await refuses(() => taking, /not allowed/);
      else assert.equal((await taking).result, first.plan ? 'not-asked' : 'not-open');
      seen.add(token(storage));
    }
    assert.equal(seen.size, 1);
    const { fetch, bodies } = collector(announce());
    await part(fetch, storage);
    assert.equal(bodies[0].slice(56, 120), [...seen][0]);
  }
});

test('simultaneous calls draw noise once', async () => {
  assert.equal(globalThis.navigator?.locks, undefined, 'this test is about storages without locks');
  const storage = shelf(), { fetch, bodies } = collector(announce(), 0, 0, 0);
  const draws = [];
  const random = (count) => { draws.push(count); return crypto.getRandomValues(new Uint8Array(count)); };
  await Promise.all(Array.from({ length: 6 }, () => part(fetch, storage, { random })));
  assert.equal(new Set(bodies).size, 1);
  assert.deepEqual(draws.filter((count) => count > 1), [32, 4], 'one token and one draw of noise');
});

test('pages that share a storage draw noise once', async () => {
  const storage = shelf(), { fetch, bodies } = collector(announce(), 0, 0, 0, 0, 0, 0, 0, 0);
  const pages = await Promise.all(Array.from({ length: 4 }, (_, i) => import(`./dither.js?page=${i}`)));
  assert.equal(new Set(pages.map((p) => p.takePart)).size, 4, 'modules of their own, as in tabs of their own');
  const given = { url: 'https://c.example', campaign: CAMPAIGN, record: { a: 'y' }, cap: 1, storage, fetch };
  const results = await Promise.all(pages.flatMap((p) => [p.takePart(given), p.takePart(given)]));
  assert.equal(bodies.length, 8);
  assert.equal(new Set(bodies).size, 1);
  assert.ok(results.every((r) => r.result === 'waiting'));
});

test('a page that lost its turn while it slept writes nothing', async () => {
  const storage = shelf(), { fetch, bodies } = collector(announce(), 0, 0);
  let stolen = false;
  const random = (count) => {
    if (!stolen && storage.getItem('dither:device')) { // asleep in the middle: another page answers and sends
      stolen = true;
      const device = JSON.parse(storage.getItem('dither:device')), body = 'ee'.repeat(60);
      device.campaigns[CAMPAIGN].answers[0] = { plan: null, epsilon: 0.69, time: 0, body, state: 'waiting' };
      storage.setItem('dither:device', JSON.stringify(device));
    }
    return zeros(count);
  };
  await refuses(() => part(fetch, storage, { random }), /plan has changed/); // it went back to the books and found the other answer
  assert.equal(bodies.length, 0);
  assert.equal(booksOf(storage).answers[0].body, 'ee'.repeat(60));
});

const other = (n, change = {}) => announce(change, { campaign: n.toString(16).padStart(32, '0') });
const spend = (n, storage, more = {}, change = {}) => {
  const announced = other(n, change);
  return part(collector(announced).fetch, storage, { campaign: announced.campaign, ...more });
};

test('all campaigns share one cap, kept in the storage', async () => {
  const storage = shelf();
  await spend(1, storage, { capTotal: 1.5 });
  await spend(2, storage);
  await refuses(() => spend(3, storage), /capTotal/);
  assert.equal((await spend(2, storage, {}, { round: 1 })).result, 'acknowledged', 'an earlier answer costs nothing');
  await refuses(() => spend(3, storage, { capTotal: 1.2 }), /capTotal/);
  await spend(3, storage, { capTotal: 2.1 });
  await refuses(() => spend(4, storage), /capTotal/);
});

test('spending counts for a period, and a clock that goes back frees nothing', async () => {
  const storage = shelf();
  let now = 1e9;
  const clock = () => now;
  await spend(1, storage, { capTotal: 1, period: 100, clock });
  for (const moved of [99, -5000]) { now += moved; await refuses(() => spend(2, storage, { clock }), /capTotal/); }
  now += 5000 + 2;
  await spend(2, storage, { clock });
  now -= 10000;
  await refuses(() => spend(3, storage, { clock }), /capTotal/);
  now += 10000 + 99;
  await refuses(() => spend(3, storage, { clock }), /capTotal/);
  now += 2;
  await spend(3, storage, { clock });
  for (const wrong of [{ capTotal: 0 }, { capTotal: NaN }, { period: 5 }, { capTotal: 1, period: -1 }, { clock: () => NaN }, { cap: 0 }]) {
    await refuses(() => spend(4, storage, wrong));
  }
});

test('damaged books stop the device', async () => {
  for (const damaged of ['{"token":', '{"format":2}', '5']) {
    const storage = shelf(), { fetch, bodies } = collector(announce());
    storage.setItem('dither:device', damaged);
    await refuses(() => part(fetch, storage), /damaged|another version/);
    assert.equal(bodies.length, 0);
  }
});

test('a storage that is full costs nothing: the books are written whole or not at all', async () => {
  const held = shelf();
  await spend(1, held, { capTotal: 1.5 });
  const before = held.getItem('dither:device');
  let room = before.length + 250; // enough to join another campaign, not to answer it
  const storage = { ...held, setItem: (k, v) => { if (v.length > room) throw new DOMException('full', 'QuotaExceededError'); held.setItem(k, v); } };
  const { fetch, bodies } = collector(other(2));
  for (let i = 0; i < 3; i++) await refuses(() => part(fetch, storage, { campaign: other(2).campaign }), /storage is full/);
  assert.equal(bodies.length, 0);
  room = Infinity;
  assert.equal((await part(fetch, storage, { campaign: other(2).campaign })).result, 'acknowledged', 'nothing was counted for what was not sent');
});

test('token and reports go to the server of the first visit only', async () => {
  const storage = shelf(), first = collector(announce(), 0), another = collector(announce());
  assert.equal((await part(first.fetch, storage)).result, 'waiting');
  await refuses(() => part(another.fetch, storage, { url: 'https://evil.example' }), /takes part at https:\/\/c\.example/);
  assert.equal(another.bodies.length, 0);
  assert.equal((await part(another.fetch, storage, { url: 'https://new.example', moved: true })).result, 'acknowledged');
  assert.equal(another.bodies[0], first.bodies[0], 'the same bytes to where the collector has moved');
});

test('a server that acknowledges nothing fills its own outbox, not the storage', async () => {
  const storage = shelf();
  let refusedAt = 0;
  for (let round = 0; round < 6000 && !refusedAt; round++) {
    await part(collector(announce({ round }), 0).fetch, storage).catch((error) => { assert.match(error.message, /wait to be acknowledged/); refusedAt = round; });
    if (round === 0) { // as if many rounds had passed: the same report a thousand times
      const device = JSON.parse(storage.getItem('dither:device')), { answers } = device.campaigns[CAMPAIGN];
      for (let i = 1; i < 4200; i++) answers[70000 + i] = { ...answers[0], epsilon: 0 };
      storage.setItem('dither:device', JSON.stringify(device));
    }
  }
  assert.ok(refusedAt > 0);
  assert.equal((await spend(2, storage)).result, 'acknowledged');
});

test('every record is answered, with the same bytes and draws', async () => {
  const traffic = async (record) => {
    const { fetch, bodies } = collector(announce()), draws = [];
    const random = (count) => { draws.push(count); return zeros(count); };
    const { result, outside } = await part(fetch, shelf(), { record, random });
    return { seen: [result, bodies.map((b) => b.length), draws], outside, answer: payload(bodies[0]) };
  };
  const raises = { get a() { throw new Error('no'); } }, expected = await traffic({ a: 'y' });
  assert.deepEqual(expected.outside, []);
  assert.equal(expected.answer, 1);
  const strange = ['pink', '', '\ud800', null, undefined, NaN, Infinity, -1, true, 10n ** 99n, Symbol('a'), [], {}, () => 0, new Proxy({}, {})];
  for (const record of [...strange.map((a) => ({ a })), raises, {}, Object.create({ a: 'y' }), Object.create(null)]) {
    const found = await traffic(record);
    assert.deepEqual(found.seen, expected.seen);
    assert.deepEqual(found.outside, ['a']);
  }
  assert.deepEqual(await traffic({ a: 'y', b: raises, more: 1 }), expected);
});

test('no refusal looks at the record, and one that is no object is refused before anything is asked', async () => {
  const looked = new Proxy({}, { get: () => assert.fail('looked at'), getOwnPropertyDescriptor: () => assert.fail('looked at') });
  const { fetch, bodies, requests } = collector(announce());
  for (const more of [{ allowed: [] }, { cap: 0.1 }, { schemaFingerprint: '0'.repeat(64) }, { capTotal: 0.1 }]) {
    await refuses(() => part(fetch, shelf(), { record: looked, ...more }));
  }
  requests.length = 0;
  for (const record of [null, undefined, 'x', ['y'], new Map([['a', 'y']])]) await refuses(() => part(fetch, shelf(), { record }));
  assert.deepEqual([requests.length, bodies.length], [0, 0]);
  const pinned = await part(fetch, shelf(), { schemaFingerprint: fingerprint(announce().schema) });
  assert.equal(pinned.result, 'acknowledged');
});

test('a code drawn instead is exactly uniform', () => {
  for (const count of [2, 3, 5, 8, 200, 256]) {
    const found = new Map();
    for (let first = 0; first < 256; first++) {
      let drawn = 0;
      try {
        const code = dither.drawBelow(count, () => { if (drawn++) throw new Error('again'); return Uint8Array.of(first); });
        found.set(code, (found.get(code) ?? 0) + 1);
      } catch (error) { assert.equal(error.message, 'again'); }
    }
    assert.equal(found.size, count);
    assert.equal(new Set(found.values()).size, 1);
  }
});

test('attributes may be called what every object has', async () => {
  const names = ['constructor', '__proto__', 'toString', 'hasOwnProperty', 'valueOf'];
  for (const [i, name] of names.entries()) {
    const shares = names.map((_, j) => (i === j ? 1 : 0)), storage = shelf();
    const answer = async (record, round) => {
      const { fetch, bodies } = collector(announce({ shares, round }, { names }));
      const { result, outside } = await part(fetch, storage, { record, random: zeros });
      return [result, outside, payload(bodies[0])];
    };
    assert.deepEqual(await answer(JSON.parse(`{"${name}":"z"}`), 0), ['acknowledged', [], 2]);
    assert.deepEqual(await answer({ b: 1 }, 1), ['acknowledged', [], 2], 'the memo repeats it');
    storage.held.clear();
    assert.deepEqual(await answer({}, 0), ['acknowledged', [name], 0], 'what an object inherits is no answer');
  }
});

test('only the collector ends a report', async () => {
  const page = (status) => new Response(status === 204 ? null : '<html>', { status, headers: { 'content-type': 'text/html' } });
  const json = (status, body) => new Response(JSON.stringify(body), { status, headers: { 'content-type': 'application/json' } });
  const notItsWord = [
    ...[200, 201, 204, 301, 302, 400, 401, 403, 404, 405, 409, 410, 413].map(page),
    json(200, {}), json(200, { results: ['stored', 'stored'] }), json(200, { results: ['conflict'] }), json(409, { type: 'urn:dither:problem:conflict' }),
    problem(404, 'no-campaign'), problem(404, 'not-found'), problem(409, 'round-not-open'), problem(503, 'conflict'),
    new Response('x'.repeat(1 << 17), { status: 200 }),
  ];
  for (const answer of notItsWord) {
    const storage = shelf(), { fetch, bodies } = collector(announce(), answer);
    assert.equal((await part(fetch, storage)).result, 'waiting');
    assert.equal((await part(fetch, storage)).result, 'acknowledged');
    assert.equal(new Set(bodies).size, 1);
  }
  const storage = shelf(), { fetch, bodies, requests } = collector(announce(), problem(409, 'conflict'));
  for (let i = 0; i < 2; i++) assert.equal((await part(fetch, storage)).result, 'refused');
  assert.equal(bodies.length, 1);
  assert.ok(requests.every(([, options]) => options.redirect === 'error' && options.credentials === 'omit'));
});

test('reports travel over https, or stay on this machine', async () => {
  for (const url of ['http://c.example', 'http://127.0.0.1.example', 'http://localhost.example', 'http://10.0.0.1', 'c.example', 'localhost:8700',
    '//c.example', '/', '', 'ftp://c.example', 'https://', 'https://u:p@c.example', 'https://c.example/?x', undefined]) {
    const { fetch, requests } = collector(announce());
    await refuses(() => part(fetch, shelf(), { url }));
    assert.equal(requests.length, 0);
  }
  for (const [url, address] of [['http://localhost:8700/', 'http://localhost:8700'], ['http://127.8.9.1', 'http://127.8.9.1'],
    ['http://[::1]:5', 'http://[::1]:5'], ['https://c.example/base//', 'https://c.example/base']]) {
    const { fetch, requests } = collector(announce());
    assert.equal((await part(fetch, shelf(), { url })).result, 'acknowledged');
    assert.equal(requests[0][0], `${address}/v1/campaigns/${CAMPAIGN}`);
  }
});

test('an announcement that does not come is told from one that is wrong', async () => {
  const offline = async () => { throw new TypeError('offline'); };
  await assert.rejects(part(offline, shelf()), Unreachable);
  for (const status of [302, 404, 500, 503]) {
    await assert.rejects(part(collector(() => new Response('no', { status })).fetch, shelf()), (e) => e instanceof Unreachable && e.message.includes(status));
  }
  const cut = () => new Response(new ReadableStream({ pull(c) { c.error(new Error('cut off')); } }));
  await assert.rejects(part(collector(cut).fetch, shelf()), Unreachable);
  let pulled = 0;
  const endless = () => new Response(new ReadableStream({ pull(c) { pulled += 1; c.enqueue(new Uint8Array(1 << 20)); } }));
  await refuses(() => part(collector(endless).fetch, shelf()), /too long/);
  assert.ok(pulled < 20);
  for (const text of ['<html>', '', 'null', '[]', '{}']) await refuses(() => part(collector(() => new Response(text)).fetch, shelf()));
  await refuses(() => part(collector(other(5)).fetch, shelf()), /another campaign/);
});

test('the question is the one that a walk along the shares finds', async () => {
  const walk = (point, shares) => {
    let total = 0, last = 0;
    for (const [i, share] of shares.entries()) { total += share; if (share > 0) { last = i; if (point < total) return i; } }
    return last;
  };
  const lists = [[1], [0, 1], [0.1, 0, 0.6, 0.3], Array(10).fill(0.1), [1 / 3, 1 / 3, 1 / 3, 0], [1e-300, 0.5, 1e-300, 0.5 - 1e-12, 0]];
  const id = fromHex(CAMPAIGN);
  for (const shares of lists) {
    for (let n = 0; n < 60; n++) {
      const token = new Uint8Array(32).fill(n + 1);
      const digest = Buffer.from(await crypto.subtle.digest('SHA-256', Buffer.concat([Buffer.from('dither-1:question\0'), token, id, Buffer.alloc(4)])));
      const point = Number(digest.readBigUInt64BE() >> 11n) / 2 ** 53;
      assert.equal(await dither.pick(token, id, { split: false, round: 0, shares }), walk(point, shares));
    }
  }
});

test('what waits says when to try again: what the server asks and a random part, so that pages do not return together', async () => {
  const busy = (headers) => () => collector(announce(), new Response('{}', { status: 429, headers }));
  const pauses = async (make, count) => Promise.all(Array.from({ length: count }, async () => (await part(make().fetch, shelf())).retryAfter));
  const asked = await pauses(busy({ 'retry-after': '40' }), 60);
  assert.ok(asked.every((x) => x >= 40 && x <= 80), `${asked}`);
  assert.ok(new Set(asked.map((x) => Math.floor(x / 4))).size >= 6, 'they spread');
  const unasked = await pauses(busy({ 'retry-after': 'tomorrow' }), 60);
  assert.ok(unasked.every((x) => x >= 0 && x <= 20));
  assert.ok(new Set(unasked.map(Math.floor)).size >= 8);
  assert.equal((await part(collector(announce()).fetch, shelf())).retryAfter, null);
  const away = await part(collector(() => new Response('', { status: 503, headers: { 'retry-after': '9' } })).fetch, shelf()).catch((e) => e);
  assert.ok(away.retryAfter >= 9 && away.retryAfter <= 29);
});

test('a report of a campaign that its collector has not known for thirty days ends, and no stranger ends it', async () => {
  const DAY = 86400, at = 1.7e9;
  const unknown = [() => problem(404, 'no-campaign'), () => problem(404, 'no-campaign')];
  for (const [[first, second], days, state, more] of [
    [unknown, 29.9, 'waiting'], [unknown, 30, 'refused'],
    [[() => new Response(JSON.stringify(announce())), unknown[1]], 900, 'waiting'],
    [unknown, 900, 'waiting', { url: 'https://other.example' }],
    [[unknown[0], () => new Response('<html>', { status: 404 })], 900, 'waiting'],
    [[unknown[0], () => problem(404, 'not-found')], 900, 'waiting'],
    [[unknown[0], () => new Response('{"type":"urn:dither:problem:no-campaign"}', { status: 404 })], 900, 'waiting'],
  ]) {
    const storage = shelf();
    assert.equal((await part(collector(announce(), 0).fetch, storage, { clock: () => at })).result, 'waiting');
    await part(collector(first, 0).fetch, storage, { clock: () => at + 100 * DAY, ...more }).catch((e) => assert.ok(e instanceof Unreachable));
    await part(collector(second).fetch, storage, { clock: () => at + (100 + days) * DAY, ...more }).catch((e) => assert.ok(e instanceof Unreachable));
    assert.equal(booksOf(storage).answers[0].state, state, `${days} days`);
  }
});

test('what waits from an earlier round is sent when another one is open, or none', async () => {
  const token = '00'.repeat(32);
  for (const next of [announce({ round: 1, population: 1e-9 }), announce(null)]) {
    const storage = shelf(), first = collector(announce(), 0);
    assert.equal((await part(first.fetch, storage, { token, ticket: false })).result, 'waiting');
    const second = collector(next, 0, stored());
    assert.deepEqual([(await part(second.fetch, storage)).result, (await part(second.fetch, storage)).result], ['waiting', 'acknowledged']);
    assert.deepEqual(second.bodies, [first.bodies[0], first.bodies[0]]);
    assert.ok(['not-asked', 'not-open'].includes((await part(second.fetch, storage)).result));
    assert.equal(second.bodies.length, 2);
  }
});

test('an epsilon that a mechanism reaches exactly is accepted, and one below it is not', async () => {
  const three = announce({}, { values: ['x', 'y'] }); // three draws of four for the truth
  const exact = 1.0986122886681098, text = (epsilon) => JSON.stringify({ ...three, epsilon }); // the double just above ln 3
  assert.equal((await dither.readAnnouncement(text(exact))).epsilon, exact);
  await refuses(() => dither.readAnnouncement(text(1.0986122886681096)), /spends more/);
});

test('the books hold digests of questions, so that no announcement fills the storage', async () => {
  const values = Array.from({ length: 4000 }, (_, i) => `value ${i}`), storage = shelf();
  const mechanism = { name: 'strategy', cells: 4000, sets: Array.from({ length: 40 }, () => 'f'.repeat(1000)) };
  const others = 2 ** 32 - 40 * 1000;
  Object.assign(mechanism, { high: mechanism.sets.map(() => 1000), low: mechanism.sets.map(() => 1000), rest: Array(4000).fill(others), threshold_bits: 32 });
  const long = announce({ questions: [{ attributes: ['a'], mechanism }], shares: [1] }, { names: ['a'], values });
  assert.equal((await part(collector(long).fetch, storage, { record: { a: 'value 7' } })).result, 'acknowledged');
  assert.ok(storage.getItem('dither:device').length < 2000, `${storage.getItem('dither:device').length}`);
  const again = collector({ ...long, plan: { ...long.plan, round: 1 } });
  assert.equal((await part(again.fetch, storage, { record: {} })).spent, booksOf(storage).answers[0].epsilon, 'the same question costs nothing');
});

test('groups of many values and long lists take no more work than their length', async () => {
  const count = 40000, values = Array.from({ length: count }, (_, i) => i), names = ['a'];
  const grouped = announce({}, { names, values });
  Object.assign(grouped.schema.attributes[0], { groups: values.map((i) => `g${i % 2}`) });
  grouped.schema_fingerprint = fingerprint(grouped.schema);
  const question = { attributes: ['a'], grouped: ['a'], mechanism: { name: 'grr', cells: 2, other: 2 ** 30, threshold_bits: 32 } };
  const plan = (n) => ({ ...grouped, epsilon: 2, plan: { ...grouped.plan, questions: Array(n).fill(question), shares: [1, ...Array(n - 1).fill(0)] } });
  const work = async (n) => {
    const text = JSON.stringify(plan(n));
    let best = Infinity;
    for (let i = 0; i < 3; i++) { const begun = process.cpuUsage(); await dither.readAnnouncement(text); best = Math.min(best, process.cpuUsage(begun).user); }
    return best;
  };
  assert.ok(await work(400) < 8 * await work(1), 'the groups of an attribute are found once');
  const repeats = announce({ questions: [{ ...question, attributes: ['a'], grouped: Array(9).fill('a') }], shares: [1] }, { names, values });
  await refuses(() => dither.readAnnouncement(JSON.stringify(repeats)));
});

test('a restored collector gets the same bytes again, nothing else does', async () => {
  const storage = shelf(), seen = [], epoch = (name) => ({ ...announce(), epoch: name });
  const visit = async (announced, time) => {
    const { fetch, bodies } = collector(announced);
    const { result, spent } = await part(fetch, storage, { clock: () => time });
    seen.push(...bodies);
    return [result, spent, bodies.length];
  };
  const day = 86400, [, spent] = await visit(announce(), 1000);
  assert.deepEqual(await visit(announce(), 2000), ['acknowledged', spent, 0]);
  assert.deepEqual(await visit(epoch('aa'), 3000), ['acknowledged', spent, 1], 'an older collector told no epoch');
  assert.deepEqual(await visit(epoch('aa'), 4000), ['acknowledged', spent, 0], 'once for each restore');
  await refuses(() => visit({ ...announce({ shares: [0, 1, 0] }), epoch: 'bb' }, 5000), /plan has changed/);
  assert.deepEqual(await visit(epoch('bb'), 4000 + 29 * day), ['acknowledged', spent, 1]);
  assert.deepEqual(await visit(epoch('cc'), 4000 + 60 * day), ['acknowledged', spent, 0], 'kept for 30 days');
  assert.equal(new Set(seen).size, 1);
  await assert.rejects(visit(epoch(7), 4000 + 60 * day));
});
