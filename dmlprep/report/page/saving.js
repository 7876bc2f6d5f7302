// The graph as a file, as far as its blocks are open: PNG, or SVG by a context that writes what it would draw.

const PIXELS = { side: 16000, all: 60e6 }; // what browsers still make a canvas of

const short = (value) => String(Math.round(value * 100) / 100);
const escaped = (text) => text.replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);

class SvgContext {
  constructor(measuring) {
    Object.assign(this, { measuring, parts: [], path: '', dash: [], globalAlpha: 1, textAlign: 'left' });
  }
  setTransform() {} // drawn at a scale of 1
  setLineDash(dash) { this.dash = dash; }
  measureText(text) {
    this.measuring.font = this.font;
    return this.measuring.measureText(text);
  }
  beginPath() { this.path = ''; }
  moveTo(...at) { this.path += `M${at.map(short)}`; }
  bezierCurveTo(...points) { this.path += `C${points.map(short)}`; }
  roundRect(x, y, width, height, round) {
    const [right, down, corner] = [width - 2 * round, height - 2 * round, `a${round},${round} 0 0 1 `];
    this.path += `M${short(x + round)},${short(y)}h${short(right)}${corner}${round},${round}v${short(down)}${corner}${-round},${round}`
      + `h${short(-right)}${corner}${-round},${-round}v${short(-down)}${corner}${round},${-round}z`;
  }
  fill() { this.parts.push(`<path d="${this.path}" fill="${this.fillStyle}"/>`); }
  stroke() {
    const more = `${this.dash.length ? ` stroke-dasharray="${this.dash}"` : ''}${this.globalAlpha < 1 ? ` opacity="${this.globalAlpha}"` : ''}`;
    this.parts.push(`<path d="${this.path}" fill="none" stroke="${this.strokeStyle}" stroke-width="${short(this.lineWidth)}"${more}/>`);
  }
  fillRect(x, y, width, height) {
    this.parts.push(`<rect x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}" fill="${this.fillStyle}"/>`);
  }
  fillText(text, x, y) {
    const more = `${this.textAlign === 'center' ? ' text-anchor="middle"' : ''}${this.font === FONT ? '' : ` style="font:${escaped(this.font)}"`}`;
    this.parts.push(`<text x="${short(x)}" y="${short(y)}" dy=".35em" fill="${this.fillStyle}"${more}>${escaped(text)}</text>`);
  }
}

// `graph` gives what is shown: its blocks, colours and name.
function readySaving(graph) {
  const file = document.querySelector('h1').lastChild.textContent.trim().split(/[\\/]/).at(-1).replace(/\.onnx$/, '');
  const save = (blob, ending) => {
    const link = document.createElement('a');
    link.href = URL.createObjectURL(blob);
    link.download = `${file}-${graph().label}.${ending}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  };
  const drawn = (context, ratio) => {
    const { root, hue } = graph();
    drawGraph(context, { x: 0, y: 0, scale: 1 }, root, null, hue, { width: root.width, height: root.height, ratio });
  };
  document.getElementById('png').addEventListener('click', () => {
    const { width, height } = graph().root;
    const ratio = Math.min(2, PIXELS.side / Math.max(width, height), Math.sqrt(PIXELS.all / (width * height)));
    const canvas = document.createElement('canvas');
    [canvas.width, canvas.height] = [Math.ceil(width * ratio), Math.ceil(height * ratio)];
    drawn(canvas.getContext('2d'), ratio);
    canvas.toBlob((blob) => save(blob, 'png'));
  });
  document.getElementById('svg').addEventListener('click', () => {
    const context = new SvgContext(document.createElement('canvas').getContext('2d'));
    drawn(context, 1);
    const size = [graph().root.width, graph().root.height].map(Math.ceil);
    const { namespaceURI } = document.querySelector('svg');
    const head = `<svg xmlns="${namespaceURI}" width="${size[0]}" height="${size[1]}" viewBox="0 0 ${size.join(' ')}" style="font:${escaped(FONT)}">`;
    save(new Blob([head, ...context.parts, '</svg>\n'], { type: 'image/svg+xml' }), 'svg');
  });
}
