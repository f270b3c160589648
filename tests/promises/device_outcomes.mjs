// Reads one JSON line {announcements, record, cap}, lets the browser's client visit each announcement, and writes one JSON line
// with everything that anyone but the device's owner could see of it. Used by the tests of promise 1.
import { createInterface } from 'node:readline';
import * as dither from '../../js/dither.js';

// The lock of a browser: pages take turns. Here there is one page.
Object.defineProperty(globalThis, 'navigator', { value: { locks: { request: async (_, work) => work() } }, configurable: true });

const CAMPAIGN = '5a'.repeat(16);
const hidden = (key, value) => (['payload', 'body'].includes(key) ? value.length : value);

async function visits({ announcements, record, cap }) {
  const held = new Map(), draws = [], sent = [], outcomes = [];
  let state = 1;
  const random = (count) => {
    draws.push(count);
    return Uint8Array.from({ length: count }, () => { state = (Math.imul(state, 1103515245) + 12345) >>> 0; return state >>> 24; });
  };
  const storage = { getItem: (key) => held.get(key) ?? null, setItem: (key, text) => held.set(key, text) };
  for (const text of announcements) {
    const fetch = async (address, options = {}) => {
      sent.push([options.method ?? 'GET', address, options.body?.length ?? 0]);
      if (options.method !== 'POST') return new Response(text);
      return new Response('{"results":["stored"]}', { status: 201, headers: { 'content-type': 'application/json' } });
    };
    const options = { url: 'https://c.example', campaign: CAMPAIGN, record, cap, storage, random, fetch, clock: () => 1.7e9 };
    const accepted = await dither.readAnnouncement(text).then(() => true, (error) => {
      if (!(error instanceof dither.Refused)) throw error;
      return false;
    });
    try {
      const { result, code, spent, receipt } = await dither.takePart(options);
      outcomes.push({ accepted, result, code, spent, receipt });
    } catch (error) {
      outcomes.push({ accepted, error: error.name, kind: error.constructor.name, code: error.code ?? null, message: error.message });
    }
  }
  const books = JSON.parse(held.get('dither:device') ?? 'null', hidden);
  return { outcomes, draws, sent, books };
}

for await (const line of createInterface({ input: process.stdin })) {
  const answer = await visits(JSON.parse(line)).catch((error) => ({ failed: String(error.stack) }));
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
