// What is known of one frame: on the line at the bottom, and beside the pointer.
"use strict";

const LONGEST_NAME = 400;

/** Name, place, source line and figures of a node, as elements. */
function describe(data, state, node) {
  const { tree } = state;
  const frame = tree.frame[node];
  const head = element("div");
  head.append(element("strong", frame < 0 ? "all" : short(nameOf(data, frame), LONGEST_NAME)));
  if (frame >= 0) {
    const line = data.frames.line[frame];
    head.append(element("span", "  " + short(data.strings[data.frames.file[frame]], LONGEST_NAME) + (line ? ":" + line : ""), "soft"));
  }
  const parts = [head];
  const source = frame >= 0 ? data.source?.[frame] : undefined;
  if (source !== undefined) parts.push(element("code", data.strings[source].trim()));
  const total = tree.total[node];
  let text = `${state.say(total)} (${sayShare(total, tree.total[0])}) · own ${state.say(tree.own[node])} · ${state.sayOther(tree.other[node])}`;
  if (data.entries.before_bytes) {
    const delta = total - tree.before[node];
    text += ` · before ${state.say(tree.before[node])} · ${delta >= 0 ? "+" : ""}${state.say(delta)}`;
  }
  parts.push(element("div", text));
  return parts;
}

/** The box beside the pointer. */
class Tip {
  constructor(box) {
    this.box = box;
  }

  show(parts, x, y) {
    this.box.replaceChildren(...parts);
    this.box.hidden = false;
    const { width, height } = this.box.getBoundingClientRect();
    const [right, below] = [x + 14, y + 18];
    this.box.style.left = Math.max(4, right + width > innerWidth - 4 ? innerWidth - width - 4 : right) + "px";
    this.box.style.top = Math.max(4, below + height > innerHeight - 4 ? y - height - 10 : below) + "px";
  }

  hide() {
    this.box.hidden = true;
  }
}
