// The explorer's charts: what is pointed at or has the focus is read out below, arrow keys move, and a picture as PNG.

const AHEAD = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

for (const figure of document.querySelectorAll('[data-chart]')) {
  const marks = [...figure.querySelectorAll('.mark')], readout = figure.querySelector('[data-readout]');
  if (!marks.length) continue;
  const show = (mark) => { readout.textContent = mark.querySelector('title').textContent; };
  marks.forEach((mark, i) => mark.setAttribute('tabindex', i ? '-1' : '0'));
  for (const kind of ['pointerover', 'focusin']) {
    figure.addEventListener(kind, (event) => { const mark = event.target.closest('.mark'); if (mark) show(mark); });
  }
  figure.addEventListener('keydown', (event) => {
    const at = marks.indexOf(document.activeElement);
    if (!(event.key in AHEAD) || at < 0) return;
    event.preventDefault();
    const next = marks[(at + AHEAD[event.key] + marks.length) % marks.length];
    marks[at].setAttribute('tabindex', '-1');
    next.setAttribute('tabindex', '0');
    next.focus();
  });
}

// The server draws the SVG; the browser turns it into pixels, three for each of its own.
for (const button of document.querySelectorAll('[data-png]')) {
  button.hidden = false;
  button.addEventListener('click', async () => {
    const picture = new Image();
    picture.src = button.dataset.png;
    await picture.decode();
    const canvas = document.createElement('canvas');
    [canvas.width, canvas.height] = [3 * picture.naturalWidth, 3 * picture.naturalHeight];
    canvas.getContext('2d').drawImage(picture, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => {
      const link = document.createElement('a');
      link.href = URL.createObjectURL(blob);
      link.download = 'chart.png';
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  });
}
