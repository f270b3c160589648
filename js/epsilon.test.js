// What the browser claims is what it gives away: every draw of coarse builds is tried, and the largest ratio of a report's
// probabilities under two values held against the claim.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { mechanism, Refused, toHex } from './dither.js';

const bytes = (prefix) => Array.from({ length: 256 }, (_, draw) => Uint8Array.from([...prefix, draw]));
const pairs = Array.from({ length: 256 }, (_, first) => bytes([first])).flat();
const permutations = (list) => (list.length < 2 ? [list]
  : list.flatMap((x, i) => permutations([...list.slice(0, i), ...list.slice(i + 1)]).map((rest) => [x, ...rest])));
const keyed = (order) => bytes(order.flatMap((key) => [key, 0, 0, 0, 0, 0, 0, 0]));

// How often each report comes of each value, over these draws.
async function counts(made, draws) {
  const laws = [];
  for (let value = 0; value < made.cells; value++) {
    const law = new Map();
    for (const draw of draws) {
      const report = toHex(await made.randomise(value, () => draw));
      law.set(report, (law.get(report) ?? 0) + 1);
    }
    laws.push(law);
  }
  return laws;
}
function worst(laws) {
  let ratio = 1;
  for (const a of laws) for (const b of laws) for (const [report, n] of a) ratio = Math.max(ratio, n / (b.get(report) ?? 0));
  return Math.log(ratio);
}
async function holds(parameters, draws, claim = (epsilon) => epsilon) {
  const made = mechanism({ ...parameters, threshold_bits: 8 });
  const truth = worst(await counts(made, draws)), claimed = claim(await made.epsilon());
  assert.ok(claimed >= truth - 2e-16 * (1 + truth) && claimed <= truth + 1e-9, `${JSON.stringify(parameters)}: claimed ${claimed}, true ${truth}`);
}

test('randomised response, hashing and coefficients', async () => {
  for (const other of [1, 17, 60]) {
    await holds({ name: 'grr', cells: 4, other }, bytes([]));
    await holds({ name: 'olh', cells: 4, buckets: 4, other }, bytes([0, 0, 0, 64, 0, 0, 0, 0]));
  }
  for (const flip of [1, 77, 127]) {
    const draws = Array.from({ length: 8 }, (_, index) => bytes([index])).flat();
    await holds({ name: 'hadamard', cells: 6, columns: 2, flip }, draws);
  }
});

test('bits', async () => {
  await holds({ name: 'sue', cells: 2, true_set: 200, other_set: 31 }, pairs);
  await holds({ name: 'oue', cells: 2, true_set: 128, other_set: 127 }, pairs);
  await holds({ name: 'bloom', cells: 3, bits: 2, hashes: 1, flipped: 90, seed: 4 }, pairs);
});

test('waves, for every width and threshold that is taken', async () => {
  let taken = 0;
  for (const cells of [2, 3, 5]) {
    for (const width of [1, 2, 3, 8]) {
      for (let base = 0; base < 90; base += 7) {
        try { mechanism({ name: 'square-wave', cells, width, base, threshold_bits: 8 }); } catch (e) { assert.ok(e instanceof Refused); continue; }
        await holds({ name: 'square-wave', cells, width, base }, bytes([]));
        taken++;
      }
    }
  }
  assert.ok(taken >= 30);
});

test('sets, whichever side has more draws, the rest and sets that tell nothing', async () => {
  const strategy = (cells, sets, high, low) => {
    const inside = (set, cell) => (parseInt(set, 16) >> cell) & 1;
    const rest = Array.from({ length: cells }, (_, cell) => 256 - sets.reduce((n, set, i) => n + (inside(set, cell) ? high[i] : low[i]), 0));
    return { name: 'strategy', cells, sets, high, low, rest };
  };
  await holds(strategy(3, ['1', '6', '3'], [60, 50, 10], [20, 30, 40]), bytes([]));
  await holds(strategy(5, ['1f', '0', '11'], [90, 3, 7], [1, 80, 9]), bytes([]));
  await holds(strategy(4, ['3', '5', '9', 'e'], [100, 20, 20, 20], [50, 10, 10, 10]), bytes([]));
  await holds(strategy(2, ['1', '2'], [120, 5], [4, 130]), bytes([]));
  await holds(strategy(2, ['1'], [1], [254]), bytes([])); // the rest tells most
});

test('subsets, over all orders and draws, for every threshold that is taken', async () => {
  const draws = permutations([0, 1, 2, 3]).flatMap(keyed);
  let taken = 0;
  for (const size of [1, 2, 3]) {
    for (let missing = 0; missing < 100; missing += 16) {
      try { mechanism({ name: 'subset', cells: 4, size, missing, threshold_bits: 8 }); } catch (e) { assert.ok(e instanceof Refused); continue; }
      await holds({ name: 'subset', cells: 4, size, missing }, draws);
      taken++;
    }
  }
  assert.ok(taken >= 6);
});

test('the check rejects a claim below the truth', async () => {
  for (const claim of [(e) => 0.9999 * e, (e) => e + 1e-8]) {
    await assert.rejects(() => holds({ name: 'grr', cells: 3, other: 37 }, bytes([]), claim), assert.AssertionError);
  }
});
