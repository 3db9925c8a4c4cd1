// Shared by the pages: unpacks their data and says numbers the way people read them. Must never build HTML from data.
"use strict";

async function read() {
  const text = document.getElementById("data").textContent.trim();
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function sayBytes(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = Math.abs(bytes);
  let unit = 0;
  // What would be rounded to 1024 is one of the next unit.
  while (size >= (unit === 0 ? 1024 : 1023.5) && unit < units.length - 1) {
    size /= 1024;
    unit++;
  }
  // At most four significant digits, as everywhere.
  const digits = unit === 0 || size >= 999.95 ? 0 : size < 99.995 ? 2 : 1;
  return (bytes < 0 ? "−" : "") + size.toFixed(digits) + " " + units[unit];
}

function sayCount(count) {
  return Math.round(count).toLocaleString("en-US").replaceAll(",", " ");
}

function sayAllocations(count) {
  return sayCount(count) + (Math.round(count) === 1 ? " allocation" : " allocations");
}

function sayShare(part, whole) {
  return whole > 0 ? ((100 * part) / whole).toFixed(part / whole < 0.1 ? 2 : 1) + " %" : "";
}

function sayTime(ms) {
  if (ms < 1000) return ms.toFixed(0) + " ms";
  const s = ms / 1000;
  if (s < 120) return s.toFixed(s < 10 ? 2 : 1) + " s";
  const m = Math.floor(s / 60);
  return m < 120 ? m + " min " + Math.round(s % 60) + " s" : Math.floor(m / 60) + " h " + (m % 60) + " min";
}
