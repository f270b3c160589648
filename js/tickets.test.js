// A ticket that was used on one device makes no other device draw noise, unless both answer before either is stored.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as dither from './dither.js';
import { CAMPAIGN, announce, collector, part, problem, shelf, stored } from './small_collector.js';

const TICKET = '5a'.repeat(32);
const noNoise = () => { throw new Error('noise was drawn'); };
const uploads = (requests) => requests.filter(([address]) => address.endsWith('/reports'));
const lookedUp = (requests) => requests.filter(([address]) => address.endsWith('/lookup')).map(([, { body }]) => dither.toHex(body));
const said = (stored) => new Response(JSON.stringify({ stored }));
const idIn = async (round) => dither.toHex(await dither.reportId(dither.fromHex(TICKET), dither.fromHex(CAMPAIGN), round));

test('a second device with the ticket draws and sends nothing', async () => {
  const { fetch, bodies, requests } = collector(announce()), [first, second] = [shelf(), shelf()];
  assert.equal((await part(fetch, first, { token: TICKET })).result, 'acknowledged');
  for (let i = 0; i < 2; i++) {
    const taken = await part(fetch, second, { token: TICKET, random: noNoise });
    assert.deepEqual([taken.result, taken.code, taken.spent, taken.receipt], ['used-elsewhere', 'used-elsewhere', 0, '']);
  }
  assert.equal(bodies.length, 1);
  assert.equal(uploads(requests).length, 1);
  assert.deepEqual(lookedUp(requests), Array(3).fill(await idIn(0)));
  assert.deepEqual(JSON.parse(second.getItem('dither:device')).campaigns[CAMPAIGN].answers, {});
  assert.equal((await part(fetch, first, { token: TICKET, random: noNoise })).result, 'acknowledged');
  assert.equal(lookedUp(requests).length, 3, 'a device that has answered asks nothing');
});

test('by arrival a ticket used in an earlier round is found', async () => {
  const rounds = [0, 1].map((round) => ({ ...announce({ round, population: 0.5 }), assignment: 'arrival', start: round / 2 }));
  const one = collector(rounds[0]), two = collector(rounds[1]);
  assert.equal((await part(one.fetch, shelf(), { token: TICKET })).result, 'acknowledged');
  assert.deepEqual([...one.ids], [await idIn(null)]);
  one.ids.forEach((id) => two.ids.add(id));
  assert.equal((await part(two.fetch, shelf(), { token: TICKET, random: noNoise })).result, 'used-elsewhere');
  assert.equal(two.bodies.length, 0);
});

test('a device that does not know draws nothing and asks again later', async () => {
  const answers = [
    0, problem(404, 'not-found'), problem(503, 'store-away'), new Response('<html>'), new Response('{"stored":"no"}'),
    new Response('false'), new Response('null'), new Response('{"stored":false}', { status: 201 }),
  ];
  for (const answer of answers) {
    const storage = shelf(), { fetch, bodies, lookups } = collector(announce());
    lookups.push(answer);
    await assert.rejects(part(fetch, storage, { token: TICKET, random: noNoise }), (e) => e instanceof dither.Unreachable && e.code === 'offline');
    assert.equal(bodies.length, 0);
    assert.equal((await part(fetch, storage, { token: TICKET })).result, 'acknowledged');
  }
});

test('a token drawn on this device is not looked up', async () => {
  const drawn = collector(announce()), own = collector(announce());
  await part(drawn.fetch, shelf());
  await part(own.fetch, shelf(), { token: TICKET, ticket: false });
  assert.deepEqual([drawn, own].flatMap(({ requests }) => lookedUp(requests)), []);
  assert.equal(drawn.bodies.length + own.bodies.length, 2);
});

test('a ticket stays one in the books, and books that do not say who drew the token ask', async () => {
  const storage = shelf();
  assert.equal((await part(collector(announce(null)).fetch, storage, { token: TICKET })).result, 'not-open');
  for (const more of [{}, { token: TICKET, ticket: false }]) {
    const { fetch, ids } = collector(announce());
    ids.add(await idIn(0));
    assert.equal((await part(fetch, storage, { ...more, random: noNoise })).result, 'used-elsewhere');
  }
  const earlier = shelf();
  assert.equal((await part(collector(announce(null)).fetch, earlier)).result, 'not-open');
  const books = JSON.parse(earlier.getItem('dither:device'));
  delete books.campaigns[CAMPAIGN].drawn;
  earlier.setItem('dither:device', JSON.stringify(books));
  const { fetch, requests } = collector(announce());
  assert.equal((await part(fetch, earlier)).result, 'acknowledged');
  assert.equal(lookedUp(requests).length, 1);
});

test('what is refused on this device is not looked up, and no other server is told', async () => {
  const storage = shelf(), { fetch, requests } = collector(announce());
  await assert.rejects(part(fetch, storage, { token: TICKET, cap: 0.1 }), { code: 'cap' });
  await assert.rejects(part(fetch, shelf(), { token: TICKET, allowed: ['b'] }), { code: 'not-allowed' });
  await assert.rejects(part(fetch, storage, { token: TICKET, url: 'https://other.example' }), { code: 'moved' });
  assert.deepEqual(lookedUp(requests), []);
});

test('pages that share a storage ask, and draw noise once', async () => {
  const storage = shelf(), { fetch, bodies } = collector(announce(), 0, 0, 0, 0);
  const pages = await Promise.all(Array.from({ length: 4 }, (_, i) => import(`./dither.js?ticket=${i}`)));
  const given = { url: 'https://c.example', campaign: CAMPAIGN, record: { a: 'y' }, cap: 1, storage, fetch, token: TICKET };
  await Promise.all(pages.map((page) => page.takePart(given)));
  assert.equal(new Set(bodies).size, 1);
});

test('in a race both devices send, and the second hears that its report is refused', async () => {
  const { fetch, bodies, lookups } = collector(announce(), stored(), problem(409, 'conflict'));
  lookups.push(said(false), said(false));
  const [first, second] = [await part(fetch, shelf(), { token: TICKET }), await part(fetch, shelf(), { token: TICKET })];
  assert.equal(first.result, 'acknowledged');
  assert.deepEqual([second.result, second.code], ['refused', 'answered']);
  assert.ok(second.spent > 0, 'its noise was drawn and sent, so it counts');
  assert.equal(bodies.length, 2);
});
