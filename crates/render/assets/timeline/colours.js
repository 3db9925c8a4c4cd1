// Which colour a block has. The eye must tell neighbours apart and find the same thing again: the same key is always the same
// colour, in light and dark.
"use strict";

const CATEGORY_HUES = { parameters: 215, gradients: 28, optimizer_state: 280, activations: 150, backward_temporaries: 48, inputs: 190, communication: 330, workspaces: 0, unknown: null };

function rgb(hue, saturation, lightness) {
  const channel = (n) => {
    const k = (n + hue / 30) % 12;
    const a = saturation * Math.min(lightness, 1 - lightness);
    return Math.round(255 * (lightness - a * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return [channel(0), channel(8), channel(4)];
}

class Colours {
  constructor(trace, by, dark) {
    const { blocks, device } = trace;
    this.dark = dark;
    this.table = new Uint32Array(blocks.count);
    this.other = this.pack(dark ? [70, 72, 78] : [196, 192, 182]);
    this.legend = new Map();
    const known = new Map();
    for (let i = 0; i < blocks.count; i++) {
      const key = blocks[by][i];
      // Neighbours of one category are told apart by a shade of their stack.
      const shade = by === "category" ? blocks.stack[i] % 5 : i % 3;
      const place = key * 8 + shade;
      let colour = known.get(place);
      if (colour === undefined) {
        const hue = by === "category" ? CATEGORY_HUES[device.categories[key]] : (key * 137.508) % 360;
        const lightness = (dark ? 0.42 : 0.62) + (shade - 2) * 0.035;
        colour = this.pack(hue === null ? rgb(0, 0, lightness) : rgb(hue, dark ? 0.4 : 0.5, lightness));
        known.set(place, colour);
      }
      this.table[i] = colour;
      if (by !== "stack") {
        const entry = this.legend.get(key) ?? { name: by === "home" ? trace.homeName(key) : device.categories[key], colour, bytes: 0 };
        if (blocks.born[i] <= trace.peak && blocks.gone[i] > trace.peak) entry.bytes += blocks.size[i];
        this.legend.set(key, entry);
      }
    }
  }

  pack([r, g, b]) {
    return (255 << 24) | (b << 16) | (g << 8) | r;
  }

  css(colour) {
    return `rgb(${colour & 255} ${(colour >> 8) & 255} ${(colour >> 16) & 255})`;
  }

  /** Part of a colour, the rest being paper. */
  fade(colour, paper, part) {
    const mix = (shift) => Math.round(((colour >> shift) & 255) * part + ((paper >> shift) & 255) * (1 - part));
    return (255 << 24) | (mix(16) << 16) | (mix(8) << 8) | mix(0);
  }
}
