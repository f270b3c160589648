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
    assert.ok(epsilon >= c.epsilon && epsilon <= c.epsilon + 4e-16 * (1 + c.epsilon), `${epsilon} ${c.epsilon}`);
    await refuses(() => m.randomise(c.value, (count) => random.subarray(0, count - 1)));
  },
  odds(c) {
    const { own, other, of100 } = dither.odds(c.mechanism);
    assert.ok(Math.abs(own - c.own) < 1e-12 && Math.abs(other - c.other) < 1e-12, `${own} ${c.own} ${other} ${c.other}`);
    assert.deepEqual(of100, [Math.round(100 * c.own), Math.round(100 * c.other)]);
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
    assert.equal(toHex(await dither.reportId(token, campaign, null)), c.only_report_id);
    assert.equal(toHex(await dither.tokenHash(token)), c.token_hash);
    const epsilon = await dither.planEpsilon(c.plan);
    assert.ok(epsilon >= c.epsilon && epsilon < c.epsilon + 1e-13);
  },
  async announcement(c) {
    const { fingerprint, epsilon } = await dither.readAnnouncement(c.text);
    assert.equal(fingerprint, c.fingerprint);
    assert.ok(epsilon >= c.epsilon && epsilon < c.epsilon + 1e-12);
  },
  'refuse-announcement': (c) => refuses(() => dither.readAnnouncement(c.text)),
  code: (c) => assert.equal(dither.codeOf(c.attribute, c.value), c.code),
  level: (c) => assert.equal(dither.levelOf(c.attribute, c.value, c.levels, c.draw), c.level),
  cell(c) {
    const known = new Map(c.attributes.map((a) => [a.name, a]));
    assert.equal(dither.cellOf(c.question, known, new Map(Object.entries(c.codes))), c.cell);
  },
  verdict: (c) => assert.equal(dither.verdict(c.status, c.content_type, c.body), c.means),
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
