// What a reader, or a reader's software, would stumble over in a page; a list of findings, empty when there are none.
(() => {
  const found = [];
  const say = (kind, element, more = '') => {
    const name = element.tagName.toLowerCase() + (element.id ? '#' + element.id : '') + (element.className.baseVal ?? element.className ? '.' + (element.className.baseVal ?? element.className) : '');
    found.push(`${kind}: ${name} ${more} ${(element.textContent || '').trim().slice(0, 40)}`.replace(/\s+/g, ' '));
  };
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const page = document.scrollingElement;

  // Width: nothing sticks out, neither of the page nor (unless it scrolls there) of its own box.
  if (page.scrollWidth > innerWidth) found.push(`overflow: the page is ${page.scrollWidth} wide in ${innerWidth}`);
  const scrolls = (element) => element.closest('.scroll') !== null;
  for (const element of all('main *, header *, footer *')) {
    if (element.closest('svg') && element.tagName !== 'svg') continue;
    const box = element.getBoundingClientRect();
    if (box.width && !scrolls(element) && (box.right > innerWidth + 0.5 || box.left < -0.5)) say('overflow', element, Math.round(box.right));
  }
  for (const card of all('.card:not(.scroll)')) if (card.scrollWidth > card.clientWidth + 1) say('overflow', card, 'inside');

  // Words: none is broken inside, unless it is longer than any column; and cards in one row end together.
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    if (node.parentElement.closest('svg, pre, code, style, script')) continue;
    for (const word of node.data.matchAll(/[\p{Script=Latin}\p{N}]+/gu)) {
      if (word[0].length > 20) continue;
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
      if (lines.size > 1) say('broken word', node.parentElement, word[0]);
    }
  }
  for (const grid of all('.grid')) {
    const ends = new Map();
    for (const card of [...grid.children].filter((child) => child.classList.contains('card'))) {
      const box = card.getBoundingClientRect();
      const top = Math.round(box.top);
      if (ends.has(top) && Math.abs(ends.get(top) - box.bottom) > 1) say('uneven', card);
      ends.set(top, box.bottom);
    }
  }

  // Names: every picture has one or is hidden; landmarks, language and title are there; ids are unique.
  for (const picture of all('svg, img')) {
    if (picture.getAttribute('aria-hidden') === 'true') continue;
    const name = picture.getAttribute('aria-label') || picture.getAttribute('alt') || '';
    if (picture.tagName === 'svg' && picture.getAttribute('role') !== 'img') say('no role', picture);
    if (name.trim().length < 10) say('no name', picture);
  }
  for (const [selector, most] of [['main', 1], ['header', 1], ['footer', 1], ['nav', 1], ['h1', 1]]) {
    if (all(selector).length !== most) found.push(`landmark: ${all(selector).length} of ${selector}`);
  }
  if (!document.documentElement.lang) found.push('language: none');
  if (!document.title) found.push('title: none');
  const ids = all('[id]').map((element) => element.id);
  if (new Set(ids).size !== ids.length) found.push('ids: not unique');
  for (const link of all('a[href^="#"]')) if (!document.getElementById(link.getAttribute('href').slice(1))) say('dead link', link);
  for (const part of all('section')) if (!document.getElementById(part.getAttribute('aria-labelledby'))) say('no heading', part);

  // Headings in order.
  let level = 0;
  for (const heading of all('h1, h2, h3, h4, h5, h6')) {
    const now = Number(heading.tagName[1]);
    if (now > level + 1) say('heading skips', heading);
    level = now;
  }

  // Contrast of text against what is painted behind it, by the formula of WCAG 2.
  const channels = (colour) => (colour.match(/[\d.]+/g) || [0, 0, 0]).map(Number);
  const light = (colour) => {
    const [r, g, b] = channels(colour).map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if ((channels(colour)[3] ?? 1) === 1) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const seen = new Set();
  for (const element of all('body *')) {
    const style = getComputedStyle(element);
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || element.matches('svg .n')) continue; // numbers in coloured cells have a test of their own
    const colour = element.closest('svg') ? style.fill : style.color;
    const back = behind(element);
    const pair = `${colour} on ${back}`;
    if (seen.has(pair)) continue;
    seen.add(pair);
    const [a, b] = [light(colour), light(back)].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) say('contrast', element, pair);
  }
  if (seen.size < 1) found.push('contrast: no text was looked at');

  // Pictures: text of a readable size, inside the picture, not on top of other text.
  for (const picture of all('svg[role=img]')) {
    const frame = picture.getBoundingClientRect();
    if (!frame.width) continue;
    const scale = frame.width / picture.viewBox.baseVal.width;
    const boxes = [];
    for (const text of all('text', picture)) {
      const box = text.getBoundingClientRect();
      const size = parseFloat(getComputedStyle(text).fontSize) * scale;
      if (size < 9.5) say('small type', text, size.toFixed(1));
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1) say('clipped', text);
      if (!text.hasAttribute('transform')) boxes.push([box, text]);
    }
    boxes.forEach(([a, text], i) => boxes.slice(i + 1).forEach(([b]) => {
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 1 && down > 4) say('overlap', text);
    }));
  }
  return found;
})()
