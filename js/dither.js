// Dither in the browser: a record is randomised here and only the randomised answer leaves. No dependencies.
// The same bytes as Python's dither.reports and dither.mechanisms, checked by the golden vectors in ../vectors.
// Thresholds are integers over 2^threshold_bits; no floating-point draw decides a report.

/** Something that must not be done; `code` says of which kind: 'cap', 'moved', 'changed', 'token', 'storage', 'not-allowed' or 'invalid'. */
export class Refused extends Error {
  constructor(why, code = 'invalid') { super(why); this.code = code; }
}

const refuse = (why, code) => { throw new Refused(why, code); };
const need = (condition, why, code) => condition || refuse(why, code);
const whole = (n) => Number.isSafeInteger(n);
const natural = (n) => whole(n) && n >= 0;
const utf8 = (text) => new TextEncoder().encode(text);
export const toHex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
export const fromHex = (text) => {
  need(typeof text === 'string' && /^([0-9a-f]{2})*$/i.test(text), 'not hexadecimal');
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
};
const sha256 = async (...parts) => new Uint8Array(await crypto.subtle.digest('SHA-256', join(...parts)));
const little = (bytes, from, to) => {
  let n = 0n;
  for (let i = to - 1; i >= from; i--) n = (n << 8n) | BigInt(bytes[i]);
  return n;
};
const number = (n, width) => Uint8Array.from({ length: width }, (_, i) => Number((BigInt(n) >> BigInt(8 * i)) & 255n));
function join(...parts) {
  const out = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const part of parts) { out.set(part, at); at += part.length; }
  return out;
}
const nextUp = (x) => {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, x);
  view.setBigUint64(0, view.getBigUint64(0) + 1n);
  return view.getFloat64(0);
};
// ln of m / n for n <= m <= 2 n, in units of 2^-160: twice the series of the inverse hyperbolic tangent.
const LN_BITS = 160n;
function lnSmall(m, n) {
  const z = ((m - n) << LN_BITS) / (m + n), square = (z * z) >> LN_BITS;
  let sum = 0n, power = z;
  for (let k = 1n; power > 0n; k += 2n) { sum += power / k; power = (power * square) >> LN_BITS; }
  return 2n * sum;
}
const LN_2 = lnSmall(2n, 1n);
// The smallest double that is at least `times` ln(over / under), as in Python: no ledger counts too little, and none too much.
function lnUp(over, under, times = 1) {
  let [m, n] = [BigInt(over), BigInt(under)], doubled = 0n;
  if (m === n) return 0;
  while (m > 2n * n) { n *= 2n; doubled++; }
  const ln = BigInt(times) * (doubled * LN_2 + lnSmall(m, n)) + (1n << 24n); // what the series lacks is far below 2^24 units
  let double = Number(ln) / 2 ** 160;
  while (BigInt(double * 2 ** 160) < ln) double = nextUp(double);
  return double;
}
const bitsOf = (report) => report.reduce((n, byte) => { for (; byte; byte &= byte - 1) n++; return n; }, 0);

const FIELDS = {
  grr: ['cells', 'other'], sue: ['cells', 'true_set', 'other_set'], oue: ['cells', 'true_set', 'other_set'],
  olh: ['cells', 'buckets', 'other'], subset: ['cells', 'size', 'missing'], bloom: ['cells', 'bits', 'hashes', 'flipped', 'seed'],
  hadamard: ['cells', 'columns', 'flip'], 'square-wave': ['cells', 'width', 'base'], strategy: ['cells', 'sets', 'high', 'low', 'rest'],
};
const LISTS = ['sets', 'high', 'low', 'rest']; // of a strategy

/** A mechanism from its integers: {cells, reportBytes, drawBytes, epsilon(), randomise(value, random), check(report)}. */
export function mechanism(m) {
  need(Object.hasOwn(FIELDS, m?.name ?? ''), 'not a mechanism this version knows');
  const names = FIELDS[m.name];
  need(Object.keys(m).length === names.length + 2, 'a mechanism needs its own numbers and no others');
  need([...names, 'threshold_bits'].every((f) => LISTS.includes(f) || natural(m[f])), 'a mechanism needs whole numbers');
  need(m.threshold_bits % 8 === 0 && m.threshold_bits >= 8 && m.threshold_bits <= 48, 'draws of this width are not supported');
  need(m.cells >= 2 && m.cells <= 2 ** 31, 'a mechanism needs at least 2 cells, and not too many');
  const made = MAKERS[m.name](m, BigInt(2 ** m.threshold_bits), m.threshold_bits / 8);
  const { randomise, check } = made;
  return {
    ...made,
    cells: m.cells,
    async randomise(value, random) {
      need(whole(value) && value >= 0 && value < m.cells, 'the value is outside the domain');
      const draws = random(made.drawBytes);
      need(draws.length === made.drawBytes, 'too few random bytes');
      return randomise(value, draws);
    },
    check(report) {
      need(report.length === made.reportBytes, 'a report of another length was expected');
      check(report);
    },
  };
}

/** The chances that a report speaks for an answer if it is yours (`own`), and if another is (`other`); null where none speaks for one. */
export function odds(m) {
  mechanism(m); // refuses what is none
  const all = 2 ** m.threshold_bits, kept = (outcomes) => 1 - ((outcomes - 1) * m.other) / all;
  const chances = {
    grr: () => [kept(m.cells), m.other / all],
    olh() {
      const start = (bucket) => Math.ceil((bucket * 65536) / m.buckets), own = kept(m.buckets);
      let same = 0;
      for (let b = 0; b < m.buckets; b++) same += ((start(b + 1) - start(b)) / 65536) ** 2;
      return [own, same * own + ((1 - same) * m.other) / all];
    },
    subset() {
      const own = (m.size * Math.floor((all - (m.cells - m.size) * m.missing) / m.size)) / all;
      return [own, (m.size - own) / (m.cells - 1)];
    },
    bloom: () => [1 - m.flipped / all, m.flipped / all], // of one bit of the filter
    hadamard: () => [1 - m.flip / all, 0.5],
    sue: () => [m.true_set / all, m.other_set / all],
  };
  const found = chances[m.name === 'oue' ? 'sue' : m.name]?.();
  return found ? { own: found[0], other: found[1], of100: found.map((x) => Math.round(100 * x)) } : null;
}

// Randomised response over k answers: the draws below keep are the truth, the rest shared by the others.
const respond = (draw, keep, other, truth) => {
  if (draw < keep) return truth;
  const answer = Number((draw - keep) / other);
  return answer + (answer >= truth ? 1 : 0);
};
// Reports that are the number of one of some outputs.
const numbered = (outputs) => {
  const width = Math.ceil((32 - Math.clz32(outputs - 1)) / 8);
  return {
    reportBytes: width,
    write: (output) => number(output, width),
    check: (report) => need(little(report, 0, width) < BigInt(outputs), 'an output outside the range'),
  };
};
const noStrayBits = (report, bits) =>
  need(bits % 8 === 0 || report[report.length - 1] >> bits % 8 === 0, 'a bit beyond the last one is set');

function unary(m, all, step) {
  const [p, q] = [BigInt(m.true_set), BigInt(m.other_set)];
  need(q >= 1n && q < p && p < all, 'thresholds that give no guarantee');
  return {
    reportBytes: Math.ceil(m.cells / 8),
    drawBytes: m.cells * step,
    epsilon: async () => lnUp(p * (all - q), q * (all - p)),
    randomise(value, draws) {
      const out = new Uint8Array(Math.ceil(m.cells / 8));
      for (let cell = 0; cell < m.cells; cell++) {
        if (little(draws, cell * step, (cell + 1) * step) < (cell === value ? p : q)) out[cell >> 3] |= 1 << (cell & 7);
      }
      return out;
    },
    check: (report) => noStrayBits(report, m.cells),
  };
}

const MAKERS = {
  sue: unary,
  oue: unary,
  grr(m, all, step) {
    const other = BigInt(m.other), keep = all - BigInt(m.cells - 1) * other;
    need(other >= 1n && other < keep, 'too few draws for the true cell');
    const width = Math.ceil((32 - Math.clz32(m.cells - 1)) / 8);
    return {
      reportBytes: width,
      drawBytes: step,
      epsilon: async () => lnUp(keep, other),
      randomise: (value, draws) => number(respond(little(draws, 0, step), keep, other, value), width),
      check: (report) => need(little(report, 0, width) < BigInt(m.cells), 'a cell outside the domain'),
    };
  },
  olh(m, all, step) {
    const other = BigInt(m.other), keep = all - BigInt(m.buckets - 1) * other;
    need(m.cells <= 1 << 17 && m.buckets >= 2 && m.buckets <= 4096, 'too many cells or buckets');
    need(other >= 1n && other < keep, 'epsilon is too small');
    const width = m.buckets <= 256 ? 1 : 2;
    return {
      reportBytes: 8 + width,
      drawBytes: 8 + step,
      epsilon: async () => lnUp(keep, other),
      randomise(value, draws) {
        const hash = ((little(draws, 0, 4) * BigInt(value) + little(draws, 4, 8)) & 0xffffffffn) >> 16n;
        const bucket = Number((hash * BigInt(m.buckets)) >> 16n);
        return join(draws.subarray(0, 8), number(respond(little(draws, 8, 8 + step), keep, other, bucket), width));
      },
      check: (report) => need(little(report, 8, 8 + width) < BigInt(m.buckets), 'a bucket outside the range'),
    };
  },
  subset(m, all, step) {
    need(m.size >= 1 && m.size < m.cells && m.cells <= 2 ** 20, 'a subset of this size is impossible');
    const size = BigInt(m.size), missing = BigInt(m.missing), arcs = BigInt(m.cells - m.size);
    const covering = (all - arcs * missing) / size, left = all - size * covering;
    need(missing >= 1n && covering * arcs > left, 'thresholds that give no guarantee');
    return {
      reportBytes: Math.ceil(m.cells / 8),
      drawBytes: m.cells * 8 + step,
      // A set that holds the value against one that does not, and how uneven keys of 64 bits may make the orders.
      epsilon: async () => nextUp(lnUp(covering * arcs, left) + (2 * m.cells * m.cells) / 2 ** 64),
      randomise(value, draws) {
        const keys = Array.from({ length: m.cells }, (_, i) => little(draws, 8 * i, 8 * i + 8));
        const order = keys.map((_, i) => i).sort((i, j) => (keys[i] < keys[j] ? -1 : keys[i] > keys[j] ? 1 : i - j));
        const draw = little(draws, m.cells * 8, draws.length), hits = size * covering, at = order.indexOf(value);
        const start = draw < hits ? at - Number(draw / covering) : at + 1 + Number((draw - hits) % arcs);
        const out = new Uint8Array(Math.ceil(m.cells / 8));
        for (let i = 0; i < m.size; i++) {
          const cell = order[(start + i + m.cells) % m.cells];
          out[cell >> 3] |= 1 << (cell & 7);
        }
        return out;
      },
      check(report) {
        noStrayBits(report, m.cells);
        need(bitsOf(report) === m.size, 'a subset of another size was expected');
      },
    };
  },
  bloom(m, all, step) {
    const flipped = BigInt(m.flipped), bytes = Math.ceil(m.bits / 8);
    need(m.cells <= 65536 && m.hashes >= 1 && m.hashes <= 64 && m.hashes < m.bits, 'a filter of this size is impossible');
    need(m.cells * bytes <= 2 ** 26, 'filters that are too large');
    need(flipped >= 1n && flipped < all / 2n, 'a flip probability that gives no guarantee');
    const filters = new Map(), positions = new Map();
    const filter = async (value) => {
      if (filters.has(value)) return filters.get(value);
      const set = new Set();
      for (let counter = 0; set.size < m.hashes; counter++) {
        const digest = await sha256(utf8(`dither-bloom:${m.seed}:${value}:${counter}`));
        for (let i = 0; i < 32 && set.size < m.hashes; i += 4) set.add(Number(little(digest, i, i + 4) % BigInt(m.bits)));
      }
      const out = new Uint8Array(bytes);
      for (const bit of set) out[bit >> 3] |= 1 << (bit & 7);
      filters.set(value, out);
      positions.set(value, [...set].sort((a, b) => a - b).join()); // tells filters apart in fewer characters than their bytes
      return out;
    };
    return {
      reportBytes: bytes,
      drawBytes: m.bits * step,
      async epsilon() {
        // The largest number of bits in which two filters differ; its bound, if that takes too long to find.
        const most = 2 * Math.min(m.hashes, m.bits - m.hashes), found = new Map();
        let distance = 0, work = Math.min(2 ** 19, Math.floor(2 ** 24 / bytes));
        for (let v = 0; v < m.cells; v++) { const f = await filter(v); found.set(positions.get(v), f); }
        const distinct = [...found.values()];
        for (let i = 0; i < distinct.length && distance < most; i++) {
          for (let j = 0; j < i && distance < most; j++) {
            distance = Math.max(distance, bitsOf(distinct[i].map((x, k) => x ^ distinct[j][k])));
            if (--work === 0) distance = most;
          }
        }
        need(distance > 0, 'all cells share one filter');
        return lnUp(all - flipped, flipped, distance);
      },
      async randomise(value, draws) {
        const out = (await filter(value)).slice();
        for (let bit = 0; bit < m.bits; bit++) {
          if (little(draws, bit * step, (bit + 1) * step) < flipped) out[bit >> 3] ^= 1 << (bit & 7);
        }
        return out;
      },
      check: (report) => noStrayBits(report, m.bits),
    };
  },
  hadamard(m, all, step) {
    need(m.columns >= 1 && m.columns <= m.cells && m.cells % m.columns === 0, 'cells that form no rows');
    const bitsFor = (count) => 32 - Math.clz32(count - 1);
    const columnBits = bitsFor(m.columns), bits = columnBits + bitsFor(m.cells / m.columns), flip = BigInt(m.flip);
    need(bits <= 22, 'too many cells');
    need(flip >= 1n && flip < all / 2n, 'a flip probability that gives no guarantee');
    const indexBytes = Math.ceil(bits / 8), width = Math.ceil((bits + 1) / 8);
    return {
      reportBytes: width,
      drawBytes: indexBytes + step,
      epsilon: async () => lnUp(all - flip, flip),
      randomise(value, draws) {
        const index = Number(little(draws, 0, indexBytes)) & (2 ** bits - 1);
        let parity = little(draws, indexBytes, indexBytes + step) < flip ? 1 : 0;
        for (let both = index & ((Math.floor(value / m.columns) << columnBits) | value % m.columns); both; both &= both - 1) parity ^= 1;
        return number(2 * index + parity, width);
      },
      check: (report) => need(little(report, 0, width) < BigInt(2 ** (bits + 1)), 'a coefficient outside the range'),
    };
  },
  // A window of outputs that slides with the cell; what division leaves over goes to the middle output.
  'square-wave'(m, all, step) {
    need(m.cells <= 4096 && m.width >= 1 && m.width <= 8192, 'a wave of this width is impossible');
    const width = BigInt(m.width), base = BigInt(m.base), peak = (all - BigInt(m.cells - 1) * base) / width;
    need(base >= 1n && base < peak, 'thresholds that give no guarantee');
    const outputs = m.cells + m.width - 1, { reportBytes, write, check } = numbered(outputs);
    return {
      reportBytes,
      drawBytes: step,
      epsilon: async () => lnUp(peak, base),
      randomise(value, draws) {
        const draw = little(draws, 0, step);
        if (draw < width * peak) return write(value + Number(draw / peak));
        const place = Number((draw - width * peak) / base);
        return write(place >= m.cells - 1 ? (outputs - 1) >> 1 : place + (place >= value ? m.width : 0));
      },
      check,
    };
  },
  // Output i has high[i] draws in the cells of its set, low[i] in the others; the last one what is left, rest[cell].
  strategy({ cells, sets, high, low, rest }, all, step) {
    need([sets, high, low, rest].every(Array.isArray) && sets.length >= 1 && cells * sets.length <= MOST.pairs && cells <= 4096, 'sets too many or none');
    need(high.length === sets.length && low.length === sets.length && rest.length === cells, 'a strategy that lacks draws');
    need([high, low, rest].every((list) => list.every((n) => whole(n) && n >= 1)), 'an output that some value can never give');
    const top = Math.ceil(cells / 4), has = (text, cell) => (parseInt(text[text.length - 1 - (cell >> 2)] ?? '0', 16) >> (cell & 3)) & 1;
    const sums = rest.slice();
    let most = lnUp(rest.reduce((a, b) => Math.max(a, b)), rest.reduce((a, b) => Math.min(a, b)));
    sets.forEach((text, i) => {
      need(typeof text === 'string' && text.length <= top && /^(0|[1-9a-f][0-9a-f]*)$/.test(text), 'a set that is not written in the one way');
      let held = 0;
      for (let cell = 0; cell < 4 * top; cell++) {
        const inside = has(text, cell);
        need(!inside || cell < cells, 'a set beyond the cells');
        held += inside;
        if (cell < cells) sums[cell] += inside ? high[i] : low[i];
      }
      if (held > 0 && held < cells) most = Math.max(most, lnUp(Math.max(high[i], low[i]), Math.min(high[i], low[i])));
    });
    need(sums.every((sum) => sum === Number(all)), 'draws that do not add up');
    const { reportBytes, write, check } = numbered(sets.length + 1);
    return {
      reportBytes,
      drawBytes: step,
      epsilon: async () => most,
      randomise(value, draws) {
        let left = Number(little(draws, 0, step)), output = 0;
        for (; output < sets.length; output++) {
          left -= has(sets[output], value) ? high[output] : low[output];
          if (left < 0) break;
        }
        return write(output);
      },
      check,
    };
  },
};

/** The bytes of an upload. */
export function encodeEnvelope(campaign, round, reports) {
  need(campaign.length === 16, 'a campaign id has 16 bytes');
  need(whole(round) && round >= 0 && round < 65536, 'a round beyond its range');
  need(reports.length >= 1 && reports.length <= 1000, 'a request carries 1 to 1000 reports');
  const parts = [utf8('DTR1'), campaign, number(round, 4), number(reports.length, 4)];
  for (const { token, question, payload } of reports) {
    need(token.length === 32, 'a token has 32 bytes');
    need(whole(question) && question >= -1 && question < 65535, 'a question beyond its range');
    need(payload.length >= 1 && payload.length <= 16384, 'a report has 1 to 16384 bytes');
    parts.push(token, number(question === -1 ? 65535 : question, 2), number(payload.length, 2), payload);
  }
  const body = join(...parts);
  need(body.length <= 1 << 20, 'an upload has at most 1 MiB');
  return body;
}

const digest = (purpose, token, campaign, round) =>
  sha256(utf8(`dither-1:${purpose}\0`), token, campaign, number(round, 4));
const fraction = (d) => {
  const view = new DataView(d.buffer);
  return (view.getUint32(0) * 2 ** 21 + (view.getUint32(4) >>> 11)) / 2 ** 53;
};
/** The id under which a report is stored; without a round (null) the one id of a participant in all of them. */
export const reportId = (token, campaign, round) => digest('report', token, campaign, round ?? 2 ** 32 - 1);
export const tokenHash = (token) => sha256(utf8('dither-1:token\0'), token);
export const place = async (token, campaign) => fraction(await digest('place', token, campaign, 0));

/** Whether the round that begins at `start` asks this participant. */
export async function isAsked(token, campaign, start, population) {
  const end = start + population, at = await place(token, campaign);
  return start <= at && at < (end >= 1 - 1e-9 ? 1 : end);
}

/** Before anything is typed: whether the open round asks this token, or a `later` one does, and what its answer will be about. */
export async function chosen(a, token) {
  const id = fromHex(a.campaign), { plan } = a, arrival = a.assignment === 'arrival';
  const asked = plan !== null && (arrival || await isAsked(token, id, a.start, plan.population));
  const later = plan !== null && !asked && await place(token, id) >= a.start;
  if (!asked) return { asked, later, question: null, questions: [], attributes: [] };
  const question = await pick(token, id, plan), questions = question === -1 ? plan.questions : [plan.questions[question]];
  return { asked, later, question, questions, attributes: [...new Set(questions.flatMap((q) => q.attributes))] };
}

/** The question this participant answers; -1 for all of a split plan. */
export async function pick(token, campaign, plan) {
  if (plan.split) return -1;
  const { ends, numbers } = shareEnds(plan.shares), point = fraction(await digest('question', token, campaign, plan.round));
  return numbers[Math.min(above(ends, point), ends.length - 1)]; // shares may end a hair before 1
}
const stretches = new WeakMap();
function shareEnds(shares) {
  if (!stretches.has(shares)) {
    const ends = [], numbers = [];
    let total = 0;
    shares.forEach((share, i) => { total += share; if (share > 0) { ends.push(total); numbers.push(i); } });
    stretches.set(shares, { ends, numbers });
  }
  return stretches.get(shares);
}
// How many of some rising numbers are at most x.
function above(rising, x) {
  let low = 0, high = rising.length;
  while (low < high) { const middle = (low + high) >> 1; if (rising[middle] <= x) low = middle + 1; else high = middle; }
  return low;
}

/** What answering a plan gives away about one record. Equal mechanisms are worked out once. */
export async function planEpsilon(plan) {
  const made = new Map();
  for (const q of plan.questions) {
    const key = JSON.stringify(q.mechanism);
    if (!made.has(key)) made.set(key, await mechanism(q.mechanism).epsilon());
  }
  const parts = plan.questions.map((q) => made.get(JSON.stringify(q.mechanism)));
  return plan.split ? addUp(parts) : parts.reduce((a, b) => Math.max(a, b));
}

// What a device reads and works out at most; the same numbers as Python's reports.limits and schema.
const MOST = {
  announcement: 8 << 20, answer: 1 << 16, attributes: 4096, values: 1 << 17, codes: 1 << 20, reportBytes: 16384, drawBytes: 1 << 20,
  mechanisms: 1 << 14, hashes: 64, digests: 1 << 18, edges: 1 << 18, filterBytes: 1 << 25, pairs: 1 << 21, waiting: 256 << 10,
};
const DRAW_BITS = [8, 16, 24, 32, 40, 48];
const object = (x) => x !== null && typeof x === 'object' && !Array.isArray(x);
const finite = (x) => typeof x === 'number' && Number.isFinite(x);
// Text for people: bounded, without control characters and halves of surrogate pairs, in one line unless `lines`.
const isText = (x, most, lines = false) => typeof x === 'string' && x.length <= 2 * most && [...x].length <= most
  && !(lines ? /[\0-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]/u : /[\0-\x1f\x7f-\x9f\ud800-\udfff]/u).test(x);
const CLOSES = /^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}:\d{2}Z)?$/;
const keysOf = (x) => Object.keys(x).sort().join();

// JSON with every text and number marked: "s" and the text, "n" and the number's own characters, which JSON.parse would lose.
// Of two equal keys JSON.parse keeps one, so that what it read is shorter than the text.
function marked(text) {
  const out = [];
  for (let at = 0; at < text.length;) {
    const from = at, c = text[at++];
    if (c === '"') {
      while (text[at] !== '"') at += text[at] === '\\' ? 2 : 1;
      out.push(JSON.stringify(`s${JSON.parse(text.slice(from, ++at))}`));
    } else if (/[-\d]/.test(c)) {
      while (/[-+.\deE]/.test(text[at] ?? '')) at++;
      out.push(`"n${text.slice(from, at)}"`);
    } else if (c > ' ') out.push(c);
  }
  const plain = out.join(''), tree = JSON.parse(plain);
  need(JSON.stringify(tree) === plain, 'the announcement has the same key twice in one object');
  return tree;
}
const ascii = (text) =>
  JSON.stringify(text).replace(/[\u007f-\uffff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
// Python compares characters, JavaScript halves of surrogate pairs.
const byCodePoints = (a, b) => {
  const [x, y] = [[...a], [...b]], at = x.findIndex((c, i) => c !== y[i]);
  return at < 0 ? x.length - y.length : (x[at].codePointAt(0) - (y[at]?.codePointAt(0) ?? -1));
};
// The characters of Python's json.dumps(sort_keys=True, separators=(",", ":")).
function canonical(x) {
  if (typeof x === 'string') return x[0] === 's' ? ascii(x.slice(1)) : x.slice(1);
  if (Array.isArray(x)) return `[${x.map(canonical).join()}]`;
  return object(x) ? `{${Object.keys(x).sort(byCodePoints).map((k) => `${ascii(k.slice(1))}:${canonical(x[k])}`).join()}}` : String(x);
}

// A schema without what only people read: two that differ in nothing else mean the same codes.
const TEXTS = ['question', 'help', 'labels'];
const coded = (schema) => {
  for (const a of schema.sattributes) for (const key of TEXTS) delete a[`s${key}`];
  return schema;
};

/** Read and check the text that a collector announces: {announcement, fingerprint, epsilon (0 if no round is open)}. */
export async function readAnnouncement(text) {
  need(typeof text === 'string' && text.length <= MOST.announcement, 'an announcement is text of at most 8 MiB');
  let announcement, schema;
  try { announcement = JSON.parse(text); } catch { refuse('the announcement is not JSON'); }
  const a = announcement;
  need(object(a) && a.format === 'dither-campaign-1', 'not an announcement this version reads');
  // Junk is refused before the pass over all characters, which takes many times their memory.
  need(Object.entries(a).every(([key, x]) => ['schema', 'plan', 'consumers'].includes(key) || x === null || typeof x !== 'object'), 'an unknown part');
  need((a.consumers ?? null) === null || (Array.isArray(a.consumers) && a.consumers.every(consumerFits)
    && a.consumers.reduce((n, c) => n + c.edges.length, 0) <= MOST.edges), 'consumers that are none');
  const known = checkSchema(a.schema);
  need(a.plan === null || (object(a.plan) && Object.keys(a.plan).length === 6 && plain(a.plan)), 'not a plan this version reads');
  try { schema = canonical(coded(marked(text).sschema)); } catch (error) { refuse(error instanceof Refused ? error.message : 'not JSON'); }
  const fingerprint = toHex(await sha256(utf8(schema)));
  need(fingerprint === a.schema_fingerprint, 'the announced schema does not have the announced fingerprint');
  need(typeof a.campaign === 'string' && /^[0-9a-f]{32}$/.test(a.campaign), 'no proper campaign id');
  need(['draft', 'open', 'closing', 'collected', 'finalised'].includes(a.state), 'an unknown state');
  need(typeof a.name === 'string' && ['open', 'tokens'].includes(a.participation), 'no proper name or way to take part');
  need(a.epsilon_reason === undefined || isText(a.epsilon_reason, 4000, true), 'no proper reason for its epsilon');
  need(isText(a.title ?? '', 200) && isText(a.purpose ?? '', 4000, true) && isText(a.contact ?? '', 500), 'no proper title, purpose or contact');
  need((a.closes ?? null) === null || (typeof a.closes === 'string' && CLOSES.test(a.closes) && (secondNumber(a.closes) ?? -1) >= 0), 'no proper closing time');
  const none = (x) => x === undefined || x === null;
  need([a.closes_at_reports, a.wanted].every((n) => none(n) || (whole(n) && n >= 1)), 'no proper number of reports');
  need(none(a.round_closes) || (finite(a.round_closes) && a.round_closes >= 0), 'no proper end of the round');
  need([undefined, 'arrival', 'token'].includes(a.assignment), 'an unknown way to assign people');
  need(isText(a.epoch ?? '', 64) && a.epoch !== null, 'no proper epoch');
  need(finite(a.epsilon) && a.epsilon >= 0 && finite(a.start) && a.start >= 0, 'numbers that are none');
  return { announcement, fingerprint, epsilon: a.plan === null ? 0 : await checkPlan(a, known) };
}

const consumerFits = (c) => object(c) && ['edges,name', 'edges,epsilon,name'].includes(keysOf(c)) && typeof c.name === 'string'
  && rises(c.edges) && c.edges.length >= 2 && (c.epsilon === undefined || positive(c.epsilon));
// A plan holds nothing but questions of two or three parts, and numbers.
const FORMS = ['attributes,mechanism', 'attributes,grouped,mechanism', 'attributes,mechanism,rounded'];
const plain = ({ questions, shares }) => Array.isArray(questions) && Array.isArray(shares) && shares.every(finite)
  && questions.every((q) => object(q) && FORMS.includes(keysOf(q))
    && [undefined, true].includes(q.rounded) && object(q.mechanism) && Array.isArray(q.attributes) && q.attributes.every((n) => typeof n === 'string')
    && Object.entries(q.mechanism).every(([key, x]) => typeof x !== 'object' || (LISTS.includes(key) && Array.isArray(x) && x.every((y) => typeof y !== 'object'))));
const LINES = ['numeric', 'date', 'datetime', 'duration'];
const CARRIES = {
  numeric: ['edges'], duration: ['edges'], date: ['edges'], datetime: ['edges'], boolean: [], categorical: ['values'], ordinal: ['values'],
};
const MAY_CARRY = {
  numeric: ['atoms', 'clip', 'groups', 'unit'], duration: ['atoms', 'clip', 'groups', 'unit'], date: ['cycles', 'groups'],
  datetime: ['cycles', 'groups'], boolean: [], categorical: ['groups'], ordinal: ['groups'],
};
const CYCLES = { weekday: 7, hour: 24 };
const turns = (a) => (a.cycles ?? []).reduce((n, cycle) => n * CYCLES[cycle], 1);
const answers = (a) => (LINES.includes(a.kind) ? lineOf(a).cells * turns(a) : a.kind === 'boolean' ? 2 : a.values.length);
const cardinality = (a) => answers(a) + (a.missing ? 1 : 0);
const NUMBERS = ['numeric', 'duration'];
const groupNames = new WeakMap();
function groups(q, a) {
  if (!(q.grouped ?? []).includes(a.name)) return null;
  if (!groupNames.has(a)) groupNames.set(a, [...new Set(a.groups)]);
  return groupNames.get(a);
}
// How many answers of an attribute a question distinguishes, and which of them a code (or a level) is.
const widthIn = (q, a) => (q.rounded ? q.mechanism.cells : groups(q, a) ? groups(q, a).length + (a.missing ? 1 : 0) : cardinality(a));
const answerIn = (q, a, code) => {
  const names = q.rounded ? null : groups(q, a);
  return !names ? code : code === answers(a) ? names.length : names.indexOf(a.groups[code]);
};

/** The cell of a question for codes by name; of grouped attributes the group counts, not the value. */
export function cellOf(q, known, codes) {
  return q.attributes.reduce((cell, n) => cell * widthIn(q, known.get(n)) + answerIn(q, known.get(n), codes.get(n)), 0);
}

const DAY = 86400;
// The forms of ISO 8601 that devices read, as Python's schema.calendar does.
const INSTANT = /^(\d{4})-(\d{2})-(\d{2})(?:[T ](\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,6}))?)?(Z|[+-]\d{2}:\d{2})?)?$/;

// Seconds since 1970 of a Date or of ISO text, null for anything else; text without an offset is taken as UTC.
function secondNumber(value) {
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? null : value.getTime() / 1000;
  const found = typeof value === 'string' ? INSTANT.exec(value) : null;
  if (found === null) return null;
  const [year, month, day, hour, minute, second] = found.slice(1, 7).map((x) => Number(x ?? 0));
  const at = new Date(0);
  at.setUTCFullYear(year, month - 1, day);
  if (year < 1 || at.getUTCMonth() !== month - 1 || at.getUTCDate() !== day || hour > 23 || minute > 59 || second > 59) return null;
  const zone = found[8] ?? 'Z', sign = zone[0] === '-' ? 1 : -1;
  const [hours, minutes] = zone === 'Z' ? [0, 0] : [Number(zone.slice(1, 3)), Number(zone.slice(4))];
  if (hours > 23 || minutes > 59) return null;
  return at.getTime() / 1000 + hour * 3600 + minute * 60 + second + Number(`0.${found[7] ?? 0}`) + sign * (hours * 3600 + minutes * 60);
}

// Where a value lies on the line of its attribute, null where it is none.
function lineNumber(a, value) {
  if (a.kind === 'date' || a.kind === 'datetime') {
    const seconds = secondNumber(value);
    return seconds === null || a.kind === 'datetime' ? seconds : Math.floor(seconds / DAY);
  }
  return typeof value === 'number' ? value : null;
}

// Bins and atoms in the order of the numbers: the code of exactly each boundary and of the stretch after it, -1 where no cell is.
const lines = new WeakMap();
function lineOf(a) {
  if (lines.has(a)) return lines.get(a);
  const edges = a.edges.map((e) => (typeof e === 'string' ? lineNumber(a, e) : e)), last = edges.at(-1);
  const atoms = new Set(a.atoms ?? []), boundaries = [...new Set([...edges, ...atoms])].sort((x, y) => x - y);
  const points = [], gaps = [], closed = a.kind === 'numeric' || a.kind === 'duration';
  let cells = 0;
  for (const boundary of boundaries) {
    points.push(atoms.has(boundary) ? cells++ : -1);
    gaps.push(edges[0] <= boundary && boundary < last ? cells++ : -1);
    if (points.at(-1) < 0) points[points.length - 1] = boundary !== last ? gaps.at(-1) : closed ? gaps.at(-2) : -1;
  }
  const line = { boundaries, points, gaps, cells };
  lines.set(a, line);
  return line;
}

const rises = (list) => Array.isArray(list) && list.every((x, i) => finite(x) && (i === 0 || list[i - 1] < x));
function checkLine(a) {
  const moments = a.kind === 'date' || a.kind === 'datetime';
  need(Array.isArray(a.edges) && a.edges.length >= 2 && a.edges.length <= MOST.values + 1, 'too few or many edges');
  need(!moments || a.edges.every((e) => typeof e === 'string' && e.length === (a.kind === 'date' ? 10 : 19) && e[10] !== ' '
    && whole(lineNumber(a, e))), 'edges that are no times');
  need(rises(moments ? a.edges.map((e) => lineNumber(a, e)) : a.edges), 'edges that do not rise');
  need(a.atoms === undefined || (rises(a.atoms) && a.atoms.length >= 1 && a.atoms.length <= MOST.values), 'atoms that do not rise');
  need(a.unit === undefined || (finite(a.unit) && a.unit > 0), 'a unit that is none');
  const allowed = a.kind === 'date' ? ['weekday'] : ['weekday', 'hour'];
  need(a.cycles === undefined || (Array.isArray(a.cycles) && a.cycles.length >= 1 && a.cycles.every((c) => allowed.includes(c))
    && new Set(a.cycles).size === a.cycles.length), 'cycles that there are not');
}
const groupsFit = (a) => a.groups === undefined || (Array.isArray(a.groups) && a.groups.length === answers(a)
  && a.groups.every((g) => typeof g === 'string' && g !== '') && new Set(a.groups).size >= 2);

const textsFit = (a) => (a.question === undefined || (a.question !== '' && isText(a.question, 500)))
  && (a.help === undefined || (a.help !== '' && isText(a.help, 2000, true)))
  && (a.labels === undefined || (Array.isArray(a.labels) && [answers(a), cardinality(a)].includes(a.labels.length)
    && a.labels.every((label) => isText(label, 200))));

// Attributes by name, if the schema is written in its canonical form.
function checkSchema(schema) {
  need(object(schema) && ['attributes,format', 'attributes,format,rules'].includes(keysOf(schema)) && schema.format === 'dither-schema-1', 'not a schema');
  need(schema.rules === undefined || (Array.isArray(schema.rules) && schema.rules.every(object)), 'rules that are none');
  const listed = schema.attributes, known = new Map();
  need(Array.isArray(listed) && listed.length >= 1 && listed.length <= MOST.attributes, 'a schema of too few or many attributes');
  let codes = 0;
  for (const a of listed) {
    need(object(a) && typeof a.name === 'string' && a.name !== '' && !known.has(a.name), 'an attribute without a name of its own');
    need(typeof a.kind === 'string' && Object.hasOwn(CARRIES, a.kind), 'an attribute of an unknown kind');
    const carries = ['kind', 'name', ...CARRIES[a.kind], ...['missing', ...TEXTS, ...MAY_CARRY[a.kind]].filter((key) => Object.hasOwn(a, key))];
    need(keysOf(a) === carries.sort().join() && [a.missing, a.clip].every((x) => [undefined, true].includes(x)), 'an attribute in another form');
    if (LINES.includes(a.kind)) {
      checkLine(a);
    } else if (a.kind !== 'boolean') {
      const fits = (v) => ['string', 'boolean'].includes(typeof v) || finite(v);
      need(Array.isArray(a.values) && a.values.every(fits), 'values that are none');
      need(new Set(a.values.map((v) => (typeof v === 'boolean' ? Number(v) : v))).size === a.values.length, 'a value twice');
    }
    need(answers(a) >= 2 && answers(a) <= MOST.values, 'an attribute of too few or many values');
    need(groupsFit(a), 'groups that do not fit');
    need(textsFit(a), 'texts for people that do not fit');
    codes += cardinality(a);
    need(codes <= MOST.codes, 'too many values in total');
    known.set(a.name, a);
  }
  return known;
}

async function checkPlan(a, known) {
  const plan = a.plan;
  need(object(plan), 'a plan is an object');
  const { round, questions, shares, split, population, tally } = plan;
  need(whole(round) && round >= 0 && round < 65536, 'a round beyond its range');
  need(Array.isArray(questions) && questions.length >= 1 && questions.length < 65536, 'a plan needs questions');
  need(typeof split === 'boolean' && Array.isArray(shares) && shares.every((s) => finite(s) && s >= 0), 'wrong shares');
  need(split ? shares.length === 0 : shares.length === questions.length, 'a plan has either shares or split');
  need(split || Math.abs(shares.reduce((x, y) => x + y, 0) - 1) <= 1e-9, 'shares that do not add up');
  need((split ? ['counts', 'patterns'] : ['counts']).includes(tally), 'a tally that the plan cannot have');
  need(finite(population) && population > 0 && population <= 1 && a.start < 1, 'a round that asks nobody');
  checkWork(questions);
  const asked = new Set(), built = new Map();
  let length = 0, draws = 0;
  for (const q of questions) {
    const { attributes, grouped, rounded, mechanism: m } = q;
    need(Array.isArray(attributes) && attributes.length >= 1 && new Set(attributes).size === attributes.length, 'a question about nothing or twice');
    need(attributes.every((n) => typeof n === 'string' && known.has(n)), 'a question that the schema lacks');
    const key = JSON.stringify(m), made = built.get(key) ?? mechanism(m);
    built.set(key, made);
    const round = rounded && attributes.length === 1 ? known.get(attributes[0]) : undefined;
    need(!rounded || (round && NUMBERS.includes(round.kind) && !round.missing && finite(round.edges.at(-1) - round.edges[0])), 'a question that rounds no number');
    const names = new Set(attributes);
    need(grouped === undefined || (Array.isArray(grouped) && grouped.length >= 1 && new Set(grouped).size === grouped.length
      && grouped.every((n) => names.has(n) && known.get(n).groups)), 'a question that groups what has no groups');
    const cells = attributes.reduce((k, n) => (k > 2 ** 53 ? k : k * widthIn(q, known.get(n))), 1);
    need(made.cells === cells, 'a question of other cells');
    need(made.reportBytes <= MOST.reportBytes && made.drawBytes <= MOST.drawBytes, 'a question too large for a device');
    length += made.reportBytes;
    draws += made.drawBytes;
    asked.add(memoKey(attributes));
  }
  need(!split || (length <= MOST.reportBytes && draws <= MOST.drawBytes), 'a report too large for a device');
  need(!split || asked.size === questions.length, 'a split plan that asks the same twice');
  need(!split || !repeatsReshaped(questions), 'a split plan that rounds or groups an attribute and asks it once more');
  const epsilon = await planEpsilon(plan);
  need(epsilon <= a.epsilon, 'the plan spends more than the campaign announces');
  return epsilon;
}

// Whether one question rounds or groups an attribute that another question asks as well.
function repeatsReshaped(questions) {
  const counts = new Map();
  for (const n of questions.flatMap((q) => q.attributes)) counts.set(n, (counts.get(n) ?? 0) + 1);
  return questions.some((q) => (q.rounded ? q.attributes : q.grouped ?? []).some((n) => counts.get(n) > 1));
}

// Counts the work of a plan's mechanisms from their numbers, before anything is built from them.
function checkWork(questions) {
  const different = new Set();
  let digests = 0, pairs = 0, size = 0;
  for (const q of questions) {
    const m = q?.mechanism;
    need(object(m) && typeof m.name === 'string', 'a question without a mechanism');
    const listed = m.name === 'strategy' ? LISTS : [];
    for (const [key, n] of Object.entries(m)) need(key === 'name' || (listed.includes(key) ? Array.isArray(n) : natural(n)), 'a mechanism needs whole numbers');
    need(DRAW_BITS.includes(m.threshold_bits), 'draws of this width are not supported');
    const key = JSON.stringify(m);
    if (different.has(key)) continue;
    need(different.add(key).size <= MOST.mechanisms, 'too many different mechanisms');
    if (m.name === 'strategy') {
      need(Array.isArray(m.sets) && natural(m.cells), 'a strategy without sets');
      need((pairs += Math.min(m.cells, 4096) * m.sets.length) <= MOST.pairs, 'strategies that are too much work');
    }
    if (m.name !== 'bloom') continue;
    need(m.hashes >= 1 && m.hashes <= MOST.hashes && m.hashes < m.bits, 'a Bloom filter of too many hashes');
    let expected = 0;
    for (let i = 0; i < m.hashes; i++) expected += m.bits / (m.bits - i);
    digests += m.cells * Math.ceil(expected / 8);
    pairs += Math.floor(Math.min(m.cells, 1024) ** 2 / 2);
    size += m.cells * (Math.floor(m.bits / 8) + 1);
    need(digests <= MOST.digests && pairs <= MOST.pairs && size <= MOST.filterBytes, 'Bloom filters that are too much work');
  }
}

// true counts as 1 and false as 0, as in Python: a boolean attribute takes both.
const plainLabel = (value) => (typeof value === 'boolean' ? Number(value) : value);
const labels = new WeakMap();
function labelCodes(a) {
  const listed = a.kind === 'boolean' ? [false, true] : a.values;
  if (!labels.has(a)) labels.set(a, new Map(listed.map((value, code) => [plainLabel(value), code])));
  return labels.get(a);
}

/** The code of a value of one attribute, null where the domain lacks it. undefined, null and NaN are missing answers. */
export function codeOf(a, value) {
  if (value === undefined || value === null || Number.isNaN(value)) return a.missing ? answers(a) : null;
  if (!LINES.includes(a.kind)) {
    return labelCodes(a).get(plainLabel(value)) ?? null;
  }
  const line = lineOf(a);
  let number = lineNumber(a, value);
  if (a.clip && number !== null) number = Math.min(Math.max(number, line.boundaries[0]), line.boundaries.at(-1));
  const at = number === null ? -1 : above(line.boundaries, number) - 1;
  if (at < 0) return null;
  const cell = line.boundaries[at] === number ? line.points[at] : line.gaps[at];
  if (cell < 0) return null;
  const days = a.kind === 'date' ? number : Math.floor(number / DAY);
  return (a.cycles ?? []).reduce((code, cycle) => code * CYCLES[cycle]
    + (cycle === 'weekday' ? (((days + 3) % 7) + 7) % 7 : Math.floor((number - days * DAY) / 3600)), cell);
}

/** The level to which a draw of 32 bits rounds a number, of some evenly spaced over the range; null where it is none of the domain. */
export function levelOf(a, value, levels, draw) {
  const low = a.edges[0], high = a.edges.at(-1);
  let number = lineNumber(a, value);
  if (number === null) return null;
  if (a.clip) number = number < low ? low : number > high ? high : number;
  if (!(low <= number && number <= high)) return null;
  const place = ((number - low) / (high - low)) * (levels - 1), level = Math.min(Math.floor(place), levels - 2);
  return level + (draw < (place - level) * 2 ** 32 ? 1 : 0);
}

// A number below count, each exactly as likely: draws beyond the last one are drawn again.
export function drawBelow(count, random) {
  const bits = 32 - Math.clz32(count - 1), bytes = Math.ceil(bits / 8);
  for (;;) {
    const drawn = Number(little(random(bytes), 0, bytes)) % 2 ** bits;
    if (drawn < count) return drawn;
  }
}

// The cell of a record for one question. Every record has one, so that silence is never an answer: a value that the domain
// lacks is answered as missing where the schema has that, else by an answer drawn uniformly. Draws do not depend on the record,
// and nothing is shared between the questions of a plan.
function encodeAnswer(known, q, record, random) {
  const outside = [];
  let cell = 0;
  for (const name of q.attributes) {
    const a = known.get(name), count = widthIn(q, a), instead = a.missing ? count - 1 : drawBelow(count, random);
    const draw = q.rounded ? Number(little(random(4), 0, 4)) : 0;
    let answer = null;
    try {
      const value = Object.hasOwn(record, name) ? record[name] : undefined, code = q.rounded ? levelOf(a, value, count, draw) : codeOf(a, value);
      answer = code === null ? null : answerIn(q, a, code);
    } catch { answer = null; } // a value that fails when it is read is outside the domain
    if (answer === null) outside.push(name);
    cell = cell * count + (answer ?? instead);
  }
  return { cell, outside };
}

const systemRandom = (count) => {
  const out = new Uint8Array(count);
  for (let i = 0; i < count; i += 65536) crypto.getRandomValues(out.subarray(i, Math.min(count, i + 65536)));
  return out;
};

/** No answer came, or none of the collector's: try again after `retryAfter` seconds. `code` is 'offline', or 'no-campaign' where it has no such campaign. */
export class Unreachable extends Error {
  constructor(why, code = 'offline', retryAfter = retryPause()) { super(why); this.code = code; this.retryAfter = retryAfter; }
}

const BACKOFF = 20; // seconds
/** Seconds until the next try: what the server asks for plus a random part, so that devices that were refused together do not return together. */
export const retryPause = (asked = 0, backoff = BACKOFF) =>
  asked + (Math.max(asked, backoff) * Number(little(systemRandom(4), 0, 4))) / 2 ** 32;

// https, or http to this very machine.
function checkAddress(url) {
  let parts;
  try { parts = new URL(url); } catch { refuse("not a collector's address; write https://HOST"); }
  const here = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/.test(parts.hostname);
  need(parts.protocol === 'https:' || (parts.protocol === 'http:' && here), 'reports travel over https');
  need(!parts.search && !parts.hash && !parts.username && !parts.password, "a collector's address has no query or user in it");
  return parts.origin + parts.pathname.replace(/\/+$/, '');
}

/** One request, never redirected, over in 30 s, of at most `most` bytes: {status, type, text, retryAfter}. Throws Unreachable or Refused. */
export async function ask(fetch, address, most, options = {}) {
  try {
    const plain = { credentials: 'omit', referrerPolicy: 'no-referrer', redirect: 'error', cache: 'no-store' };
    const answer = await fetch(address, { ...plain, signal: AbortSignal.timeout(30000), ...options });
    if (answer.redirected) throw new Unreachable('the collector redirects');
    const parts = [], reader = answer.body?.getReader();
    for (let size = 0, next; reader && !(next = await reader.read()).done;) {
      parts.push(next.value);
      if ((size += next.value.length) > most) { await reader.cancel(); throw new Refused('an answer too long to read'); }
    }
    const text = new TextDecoder().decode(join(...parts));
    const after = answer.headers.get('retry-after') ?? '';
    return { status: answer.status, type: answer.headers.get('content-type') ?? '', text, retryAfter: retryPause(/^\d{1,5}$/.test(after) ? Number(after) : 0) };
  } catch (error) {
    if (error instanceof Refused || error instanceof Unreachable) throw error;
    throw new Unreachable(`the collector does not answer: ${error.message}`);
  }
}

const ACCEPTED = ['stored', 'duplicate'];
const PROBLEM = 'urn:dither:problem:';
const FINAL = [
  'answered',
  'bad-envelope', 'conflict', 'malformed', 'not-this-round', 'round-closed', 'too-large', 'unknown-token', 'wrong-campaign', 'wrong-question',
];
const isProblem = (type) => type.split(';')[0].trim().toLowerCase() === 'application/problem+json';
/** What an answer means for the report: only the collector's own word about it acknowledges or refuses it for good. */
export function verdict(status, type, text) {
  let said;
  try { said = JSON.parse(text); } catch { return 'waiting'; }
  if (!object(said)) return 'waiting';
  if (status === 200 || status === 201) {
    const r = said.results;
    return Array.isArray(r) && r.length === 1 && ACCEPTED.includes(r[0]) ? 'acknowledged' : 'waiting';
  }
  const ours = status >= 400 && status < 500 && isProblem(type);
  if (!ours || !FINAL.some((cause) => said.type === PROBLEM + cause)) return 'waiting';
  return said.type === `${PROBLEM}answered` ? 'answered' : 'refused';
}

const DEVICE = 'dither:device', LOCK = 'dither:lock', HOLD = 10000, SETTLE = 25;
const wait = (ms) => new Promise((done) => { setTimeout(done, ms); });
const memoKey = (attributes) => JSON.stringify([...attributes].sort());
const addUp = (parts) => parts.reduce((a, b) => a + b, 0) * (parts.length > 1 ? 1 + 1e-15 * parts.length : 1);
const positive = (x) => finite(x) && x > 0;
const parse = (text) => { try { return JSON.parse(text); } catch { return refuse('the books in the storage are damaged', 'storage'); } };

const put = (storage, key, text) => {
  try { storage.setItem(key, text); } catch { refuse('the storage is full: the books cannot be kept, and nothing is sent', 'storage'); }
};

// One page at a time at the books: by the browser's lock, else, as well as a storage can, by a note of whose turn it is.
async function exclusively(storage, work) {
  const locks = globalThis.navigator?.locks;
  if (locks) return locks.request(DEVICE, work);
  const owner = toHex(systemRandom(16)), start = Date.now();
  for (let mine = false; !mine;) {
    const held = parse(storage.getItem(LOCK)), now = Date.now();
    need(now < start + 3 * HOLD, 'another page holds the books');
    const free = !held || now >= held.until || held.until > now + HOLD;
    if (free) {
      put(storage, LOCK, JSON.stringify({ owner, until: now + HOLD }));
      need(storage.getItem(LOCK) !== null, 'the storage keeps nothing', 'storage');
    }
    await wait(SETTLE);
    mine = free && parse(storage.getItem(LOCK))?.owner === owner;
  }
  try { return await work(); } finally { if (parse(storage.getItem(LOCK))?.owner === owner) storage.setItem(LOCK, 'null'); }
}

// All books of this storage under one key, so that they are written whole or not at all: what was spent on every campaign, each
// campaign's token, answers and memo. `save` gives false if another page has changed them since they were read.
function openBooks(storage) {
  let before = storage.getItem(DEVICE);
  const books = parse(before) ?? { format: 1, latest: 0, campaigns: {} };
  need(object(books) && books.format === 1, 'the books in the storage are of another version', 'storage');
  const save = () => {
    const after = JSON.stringify(books);
    if (storage.getItem(DEVICE) !== before) return false;
    put(storage, DEVICE, after);
    need(storage.getItem(DEVICE) === after, 'the storage does not keep the books', 'storage');
    before = after;
    return true;
  };
  return { books, save };
}

// One draw for each campaign and round. A page may see in its localStorage for a moment what another page has changed already, lock or
// no lock; a transaction of IndexedDB sees what is there. Gives the entry that counts: this one, or the one that was there first.
const claim = (key, entry) => new Promise((resolve, reject) => {
  if (!globalThis.indexedDB) return resolve(entry);
  const fail = () => reject(new Refused('the storage keeps nothing', 'storage'));
  const opened = indexedDB.open('dither', 1);
  opened.onupgradeneeded = () => opened.result.createObjectStore('drawn');
  opened.onerror = opened.onblocked = fail;
  opened.onsuccess = () => {
    let counts = entry;
    const changes = opened.result.transaction('drawn', 'readwrite', { durability: 'strict' }), drawn = changes.objectStore('drawn'), held = drawn.get(key);
    held.onsuccess = () => { if (held.result === undefined) drawn.put(entry, key); else counts = held.result; };
    changes.onabort = changes.onerror = fail;
    changes.oncomplete = () => { opened.result.close(); resolve(counts); };
  };
  return undefined;
});

let turn = Promise.resolve();

/** Take part once: look, check against caps and ledger, randomise, keep, send; a retry sends the same bytes. Options: dither.d.ts. */
export function takePart(options) {
  const mine = turn.then(() => takeTurn(options));
  turn = mine.then(() => {}, () => {});
  return mine;
}

/** Whether a report with this id is stored; a device with a ticket asks before it draws. Throws Unreachable if the collector does not say. */
export async function isStored({ url, campaign, receipt, fetch = globalThis.fetch }) {
  const address = `${checkAddress(url)}/v1/campaigns/${campaign}/lookup`;
  const said = await ask(fetch, address, MOST.answer, { method: 'POST', body: fromHex(receipt) });
  let stored;
  try { stored = JSON.parse(said.text)?.stored; } catch { stored = undefined; }
  if (said.status === 200 && typeof stored === 'boolean') return stored;
  throw new Unreachable(`the collector does not say whether this ticket has been used (status ${said.status}); nothing was drawn or sent`);
}

async function takeTurn({
  url, campaign, record, cap, capTotal, period, token, ticket = token !== undefined, allowed, questions, schemaFingerprint, moved = false, storage = localStorage,
  random = systemRandom, clock = () => Date.now() / 1000, fetch = globalThis.fetch,
}) {
  need(object(record) && !(record instanceof Map), 'a record is an object from names to values');
  need(positive(cap) && [capTotal, period].every((x) => x === undefined || positive(x)), 'a cap or period must be a number above 0');
  need(period === undefined || capTotal !== undefined, 'a period goes with capTotal; give both');
  need(token === undefined || fromHex(token).length === 32, 'a token has 32 bytes');
  need(/^[0-9a-f]{32}$/.test(campaign), 'a campaign id has 16 bytes');
  const server = checkAddress(url), address = `${server}/v1/campaigns/${campaign}`, said = await ask(fetch, address, MOST.announcement);
  if (unknownCampaign(said)) await exclusively(storage, () => noteUnknown(storage, campaign, server, clock()));
  if (said.status !== 200) throw new Unreachable(`the collector says ${said.status}`, said.status === 404 ? 'no-campaign' : 'offline', said.retryAfter);
  const { announcement: a, epsilon, fingerprint } = await readAnnouncement(said.text);
  need(a.campaign === campaign, 'the collector announces another campaign');
  need(schemaFingerprint === undefined || fingerprint === schemaFingerprint, 'another schema than the one agreed on', 'changed');
  const options = { server, moved, campaign, record, cap, capTotal, period, token, ticket, allowed, questions, storage, random, clock };
  let kept, unused = false;
  for (let tries = 0; !kept; tries++) {
    need(tries < 5, 'another page keeps changing the books');
    kept = await exclusively(storage, () => answerOnce(a, epsilon, fingerprint, { ...options, unused }));
    if (kept?.result === 'ask') { // without holding the books meanwhile; what another page answers is found at the next try
      unused = !await isStored({ url: server, campaign, receipt: kept.receipt, fetch });
      kept = unused ? undefined : { result: 'used-elsewhere', spent: kept.spent };
    }
  }
  const earlier = await sendEarlier(fetch, address, storage, campaign, kept.round ?? a.plan?.round);
  if (earlier && ['not-open', 'not-asked', 'used-elsewhere'].includes(kept.result)) kept = { ...kept, ...earlier };
  const { result, spent, body, round, cause, outside = [], receipt = '', comeBack = null } = kept;
  const came = (state, why, retryAfter = null) => ({ result: state, code: codeFor(state, why, a), spent, outside, receipt, comeBack, retryAfter });
  if (result !== 'waiting' || body === undefined) return came(result, cause, kept.retryAfter);
  const { state, cause: why, retryAfter } = await sendBody(fetch, address, storage, campaign, round, body);
  return came(state, why, retryAfter);
}

// Send one report and note what became of it: {state, cause, retryAfter (null unless it still waits)}.
async function sendBody(fetch, address, storage, campaign, round, body) {
  const headers = { 'content-type': 'application/vnd.dither.reports' };
  const [state, text, after] = await ask(fetch, `${address}/reports`, MOST.answer, { method: 'POST', headers, body: fromHex(body) })
    .then((said) => [verdict(said.status, said.type, said.text), said.text, said.retryAfter], (error) => ['waiting', '', error.retryAfter ?? retryPause()]);
  if (state === 'waiting') return { state, retryAfter: after };
  const cause = state === 'refused' ? JSON.parse(text).type.slice(PROBLEM.length) : undefined;
  await exclusively(storage, () => settle(storage, campaign, round, body, { state, cause }));
  return { state, cause, retryAfter: null };
}

// Send what waits from other rounds than the one at hand: what became of the latest of them, null if there is none.
async function sendEarlier(fetch, address, storage, campaign, open) {
  const answers = Object.entries(openBooks(storage).books.campaigns[campaign]?.answers ?? {});
  const waiting = answers.filter(([round, x]) => Number(round) !== open && x.state === 'waiting').sort(([x], [y]) => x - y);
  let last = null;
  for (const [round, { body }] of waiting) {
    const { state, cause, retryAfter } = await sendBody(fetch, address, storage, campaign, round, body);
    last = { result: state, cause, retryAfter, body: undefined };
  }
  return last;
}

// A collector that has deleted a campaign cannot be told from one with the wrong database, so "no such campaign" ends a report only
// when its collector has said nothing else for these days. Python has the same number.
const UNKNOWN_CAMPAIGN_DAYS = 30;
const unknownCampaign = ({ status, type, text }) => {
  if (status !== 404 || !isProblem(type)) return false;
  try { return JSON.parse(text)?.type === `${PROBLEM}no-campaign`; } catch { return false; }
};
function noteUnknown(storage, campaign, server, time) {
  const { books, save } = openBooks(storage), own = books.campaigns[campaign], now = Math.max(time, books.latest);
  if (own?.server !== server) return;
  own.unknownSince ??= now;
  const ended = now - own.unknownSince >= UNKNOWN_CAMPAIGN_DAYS * DAY;
  for (const answer of Object.values(own.answers)) {
    if (ended && answer.state === 'waiting') Object.assign(answer, { state: 'refused', cause: 'no-campaign', body: '' });
  }
  save();
}

const CODES = { conflict: 'answered', 'round-closed': 'closed', 'not-this-round': 'not-asked', 'unknown-token': 'token' };
function codeFor(state, cause, a) {
  if (state === 'acknowledged') return null;
  if (state === 'not-open') return ['collected', 'finalised'].includes(a.state) ? 'closed' : state;
  return { waiting: 'offline', refused: CODES[cause] ?? 'invalid' }[state] ?? state;
}

function settle(storage, campaign, round, body, became) {
  const { books, save } = openBooks(storage), answer = books.campaigns[campaign]?.answers[round];
  if (answer?.body !== body) return;
  // The bytes of an acknowledged report are kept for a collector that is restored from a backup.
  if (became.state === 'acknowledged') answer.kept = { body, epoch: books.campaigns[campaign].epoch ?? '', time: books.latest };
  Object.assign(answer, became, { body: '' });
  save();
}

// A collector that was restored since it acknowledged the open round's report gets the same bytes again, within these days.
const RESEND_DAYS = 30;
function sendAgain(answer, epoch, now) {
  const { kept } = answer;
  if (kept && now - kept.time > RESEND_DAYS * DAY) delete answer.kept;
  else if (kept && answer.state === 'acknowledged' && kept.epoch !== epoch) Object.assign(answer, { state: 'waiting', body: kept.body });
}

// Randomise the answers to some questions: {parts, outside}. What is `known` already is not drawn again.
async function drawAnswers(a, asked, known, record, random) {
  const byName = new Map(a.schema.attributes.map((x) => [x.name, x])), parts = [], outside = new Set();
  for (const [i, q] of asked.entries()) {
    if (known[i]) { parts.push(fromHex(known[i].payload)); continue; }
    const answer = encodeAnswer(byName, q, record, random);
    for (const name of answer.outside) outside.add(name);
    parts.push(await mechanism(q.mechanism).randomise(answer.cell, random));
  }
  return { parts, outside: [...outside] };
}

/** A report for practice, a part per question: drawn anew at every call, kept and sent nowhere. */
export const practise = (a, questions, record, random = systemRandom) => drawAnswers(a, questions, [], record, random);

// With the books to itself: join, then answer the open round unless that was done. Gives what to send, or nothing if another page
// changed the books meanwhile; then nothing was written either, and the noise drawn here is forgotten.
async function answerOnce(
  a, epsilon, fingerprint,
  { server, moved, campaign, record, cap, capTotal, period, token, ticket, allowed, questions, storage, random, clock, unused },
) {
  const id = fromHex(campaign), plan = a.plan, now = clock();
  need(finite(now), 'the clock tells no time');
  const { books: device, save } = openBooks(storage);
  const books = device.campaigns[campaign] ??= {
    server, schema: fingerprint, cap, token: token ?? toHex(random(32)), drawn: !ticket, answers: {}, memo: {},
  };
  // Id and schema are public, so another server may show them too: token and reports go to the first one only.
  need(books.server === server || moved, `this device takes part at ${books.server}; if the collector has moved, say so`, 'moved');
  need(books.schema === fingerprint, 'the campaign has changed its schema', 'changed');
  const assignment = a.assignment ?? 'token'; // one answer in all must not become one in each round
  need((books.assignment ??= assignment) === assignment, 'the campaign has changed how it asks people', 'changed');
  need(token === undefined || books.token === token, 'this device takes part with another token', 'token');
  Object.assign(books, { server, cap: Math.min(books.cap, cap), unknownSince: undefined, epoch: a.epoch ?? '' });
  device.latest = Math.max(device.latest, now); // a clock that goes back frees nothing
  if (capTotal !== undefined) Object.assign(device, { capTotal, period });
  if (!save()) return undefined; // the token is kept from the first look on
  const spent = () => addUp(Object.values(books.answers).map((x) => x.epsilon).filter((x) => x > 0));
  const own = fromHex(books.token), once = a.assignment === 'arrival', first = Object.keys(books.answers)[0];
  const round = once && first !== undefined ? Number(first) : plan?.round; // one round is answered where whoever arrives is asked
  if (round === undefined) return { result: 'not-open', spent: spent() };
  const planDigest = toHex(await sha256(utf8(JSON.stringify([a.start, plan])))), done = books.answers[round];
  const receipt = toHex(await reportId(own, id, once ? null : round));
  if (done) {
    need(round !== plan?.round || done.plan === planDigest, 'the round was answered, and its plan has changed', 'changed');
    if (round === plan?.round) sendAgain(done, books.epoch, device.latest);
    if (!save()) return undefined;
    return { result: done.state, spent: spent(), body: done.body, cause: done.cause, round, receipt };
  }
  const { asked: mine, later, question, questions: asked } = await chosen(a, own);
  if (!mine) return { result: 'not-asked', spent: spent(), comeBack: later ? a.round_closes ?? null : null };
  need(!allowed || asked.every((q) => q.attributes.every((n) => allowed.includes(n))), 'a question that is not allowed', 'not-allowed');
  need(!questions || JSON.stringify(questions) === JSON.stringify(asked), 'other questions than those shown', 'not-allowed');
  const known = asked.map((q) => books.memo[memoKey(q.attributes)]);
  // Earlier versions kept the question itself, as long as the server made it.
  const digests = await Promise.all(asked.map(async (q) => toHex(await sha256(utf8(JSON.stringify(q))))));
  asked.forEach((q, i) => need(!known[i] || [digests[i], JSON.stringify(q)].includes(known[i].question), 'a question is asked a second time'));
  const cost = known.every(Boolean) ? 0 : epsilon;
  need(cost === 0 || spent() + cost <= books.cap, 'the plan would exceed the cap', 'cap');
  const since = device.period ? device.latest - device.period : -Infinity;
  const everything = Object.values(device.campaigns).flatMap((x) => Object.values(x.answers));
  const total = addUp([cost, ...everything.filter((x) => x.epsilon > 0 && x.time > since).map((x) => x.epsilon)]);
  need(cost === 0 || !device.capTotal || total <= device.capTotal, 'all campaigns together would exceed capTotal', 'cap');
  // Another device may hold the ticket too: nothing is drawn before the collector has said that it is unused.
  if ((ticket || !books.drawn) && !unused) return { result: 'ask', spent: spent(), receipt };
  const { parts, outside } = await drawAnswers(a, asked, known, record, random);
  const memo = Object.fromEntries(asked.map((q, i) => [memoKey(q.attributes), { question: digests[i], payload: toHex(parts[i]) }]));
  const body = toHex(encodeEnvelope(id, plan.round, [{ token: own, question, payload: join(...parts) }]));
  const waiting = Object.values(books.answers).reduce((n, x) => n + x.body.length / 2, body.length / 2);
  need(waiting <= MOST.waiting, 'too many reports of this campaign wait to be acknowledged');
  const answer = { plan: planDigest, epsilon: cost, time: device.latest, body, state: 'waiting' };
  const key = JSON.stringify([server, campaign, once ? 'all' : plan.round]);
  const counts = storage === globalThis.localStorage ? await claim(key, { token: books.token, answer, memo }) : { token: books.token, answer, memo };
  // Another page of this browser was faster: its draw is the one that is sent.
  need(!ticket || counts.token === books.token, 'this device takes part with another token', 'token');
  need(counts.answer.plan === planDigest, 'the round was answered, and its plan has changed', 'changed');
  books.token = counts.token;
  Object.assign(books.memo, counts.memo);
  books.answers[plan.round] = counts.answer;
  if (!save()) return undefined; // kept before anything is sent
  const sentAs = toHex(await reportId(fromHex(counts.token), id, once ? null : round));
  return { result: 'waiting', spent: spent(), body: counts.answer.body, outside, round, receipt: sentAs };
}
