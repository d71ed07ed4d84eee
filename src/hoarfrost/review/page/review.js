// The page of hoarfrost review. It asks the server that it came from, and nobody else; names reach the page as text only.

const $ = (id) => document.getElementById(id);
const UNSURE = -1, POSSIBLY_NEW = -2, GAP = 10, CAPTION = 46, AHEAD = 700, SMALL = 96;

let state = null;            // what the server says of the classes
let group = null;            // the class that is shown; -1: unsure images
let list = null;             // its images
let rows = [];               // where they are: {top, height, first, cells: [{left, width}]}
let cells = new Map();       // what is in the document, by position in the list
let cursor = 0;              // the chosen image, by position in the list
let anchor = 0;              // where a selection of several images began
let selected = new Set();    // their positions in the list; empty where the chosen one is the only one
let parts = null;            // what a class would be split into
let told = null;             // a move whose effect on other images is not known yet
let request = 0, painted = 0, ended = false, declined = null;

// Talking to the server ---------------------------------------------------------------------------------------------

async function ask(path) {
  const answer = await fetch(path, { cache: "no-store" });
  if (answer.status === 204) return null;
  if (!answer.ok) throw new Error(answer.status);
  return answer.json();
}

// One decision after the other, however quickly keys are pressed: each is made of what the one before has left.
let last = Promise.resolve();
const inTurn = (work) => (last = last.then(work, work));

async function decide(decision) {
  let answer;
  try {
    answer = await fetch("decide", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ version: state.version, decision }),
    });
  } catch {
    return end();
  }
  const told = answer.headers.get("content-type") === "application/json" ? await answer.json() : {};
  if (answer.ok) {
    take(told);
    return true;
  }
  if (answer.status === 409) {
    take(told);
    say("The classes were changed elsewhere. You see them as they are now: please decide again.", true);
  } else {
    say(sentence(told.refused ?? "This was not saved"), true);
  }
  return false;
}

async function watch() {
  if (ended) return;
  try {
    const told = await ask(`state?since=${encodeURIComponent(state?.since ?? "")}`);
    if (told) take(told);
    setTimeout(watch, state.ready && !state.busy ? 1500 : 400);
  } catch {
    end();
  }
}

function end() {
  ended = true;
  for (const button of document.querySelectorAll("#bar button, #bar input")) button.disabled = true;
  say(`The review has ended, and every decision is saved. To go on: hoarfrost review ${state?.model ?? "MODEL"}`, true);
  return false;
}

// What is shown ------------------------------------------------------------------------------------------------------

const byId = (id) => state.classes[id];
const nameOf = (id) => (id === UNSURE ? "Unsure images" : id === POSSIBLY_NEW ? "Possibly new" : byId(id).name);
const isClass = (id) => id !== null && id >= 0;
const present = () => state.classes.filter((one) => one.stands_for === one.id);
const percent = (share) => (share > 0 && share < 0.005 ? "<1 %" : `${Math.round(100 * share)} %`);
const count = (n, one, many) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
const order = () => [...state.queue.filter((id) => byId(id).new), ...(state.possibly_new ? [POSSIBLY_NEW] : []),
  ...(state.unsure ? [UNSURE] : []),
  ...state.queue.filter((id) => !byId(id).new)];

function make(kind, properties = {}, ...children) {
  const made = Object.assign(document.createElement(kind), properties);
  made.append(...children);
  return made;
}

function say(text, refused = false) {
  $("said").textContent = text;
  $("said").classList.toggle("refused", refused);
}

function take(answer) {
  const before = state;
  state = answer;
  $("app").hidden = false;
  showQueue();
  if (group === null || (isClass(group) && byId(group)?.stands_for !== group)) {
    const wanted = group === null ? fromAddress() : byId(group)?.stands_for;
    const isThere = order().includes(wanted) || (group === null && wanted === UNSURE);
    group = isThere && !(group !== null && wanted < 0) ? wanted : order()[0] ?? null;
  }
  if (told && state.changed !== null) {
    say(`${told} ${count(state.changed, "other image", "other images")} changed class. Undo with U.`);
    told = null;
  }
  showBar();
  if (!before || before.round !== answer.round || list?.group !== group) load();
  else if (before.version !== answer.version) redraw();
}

function showQueue() {
  const shown = state.model.split(/[\\/]/).filter(Boolean).pop() ?? state.model;
  $("model").textContent = shown;
  $("model").title = state.model;
  document.title = `${shown} – hoarfrost review`;
  $("folder").textContent = state.ready ? `${count(state.images, "image", "images")} in ${state.folder}` : state.folder;
  $("folder").title = state.left_out;
  const toDecide = state.classes.filter((one) => one.to_decide), decided = toDecide.filter((one) => one.decided);
  $("decided").textContent = toDecide.length ? `${decided.length} of ${toDecide.length} decided` : "No new classes to decide";
  $("meter").hidden = !toDecide.length;
  $("meter").firstElementChild.style.width = `${(100 * decided.length) / Math.max(1, toDecide.length)}%`;
  const kept = document.activeElement?.dataset?.group, scrolled = $("groups").scrollTop;
  const fresh = [], ids = state.ready ? state.queue : present().map((one) => one.id);
  const section = (title, made) => made.length && fresh.push(make("h3", { textContent: title }), ...made);
  section("New classes", ids.filter((id) => byId(id).new).map(entry));
  section("Images of no class", [...(state.possibly_new ? [entry(POSSIBLY_NEW)] : []), ...(state.unsure ? [entry(UNSURE)] : [])]);
  section("Known classes, least sure first", ids.filter((id) => !byId(id).new).map(entry));
  section("Merged or rejected", state.classes.filter((one) => one.stands_for !== one.id).map((one) => make("p", {
    className: "gone",
    textContent: one.stands_for < 0 ? `${one.name}: rejected` : `${one.name}: now part of ${nameOf(one.stands_for)}`,
  })));
  $("groups").replaceChildren(...fresh);
  $("groups").scrollTop = scrolled;
  if (kept !== undefined) $("groups").querySelector(`[data-group="${kept}"]`)?.focus();
}

const imagesOf = (id) => (id === UNSURE ? state.unsure : id === POSSIBLY_NEW ? state.possibly_new : byId(id).images);

// An entry of the list takes the images that are dragged onto it.
function receive(entry, id) {
  entry.addEventListener("dragover", (event) => {
    if (id === group || !event.dataTransfer.types.includes("application/x-hoarfrost")) return;
    event.preventDefault();
    entry.classList.add("over");
  });
  entry.addEventListener("dragleave", () => entry.classList.remove("over"));
  entry.addEventListener("drop", (event) => {
    event.preventDefault();
    entry.classList.remove("over");
    moveTo({ class: id }, nameOf(id));
  });
}

function entry(id) {
  const one = isClass(id) ? byId(id) : null, images = imagesOf(id);
  const samples = one ? one.samples : id === UNSURE ? state.unsure_samples : state.possibly_new_samples;
  const face = samples.length
    ? make("img", { className: "face", src: thumbnail(samples[0]), alt: "", loading: "lazy" })
    : make("span", { className: "face" });
  let about = state.ready ? count(images, "image", "images") : "";
  if (one && !one.new && one.least !== null) about += `, least sure ${percent(one.least)}`;
  const made = make("button", { type: "button", title: nameOf(id) }, face,
    make("span", { className: "called", textContent: nameOf(id) }), make("span", { className: "about", textContent: about }));
  if (one?.new && one.decided) made.append(make("span", { className: "tick", textContent: "✓", ariaLabel: "decided", role: "img" }));
  made.dataset.group = id;
  made.setAttribute("aria-current", String(id === group));
  made.addEventListener("click", () => { go(id); document.body.classList.remove("listing"); });
  if (one) receive(made, id);
  return made;
}

function showBar() {
  const one = isClass(group) ? byId(group) : null;
  $("title").textContent = group === null ? (state.ready ? "No images" : "Reading the images") : nameOf(group);
  $("subtitle").textContent = subtitle(one);
  $("naming").hidden = group === null;
  $("field").hidden = $("give").hidden = !one && !moving;
  $("split").hidden = !one;
  $("move").disabled = ended || !list?.index.length;
  $("move").textContent = selected.size > 1 ? `Move ${selected.size}` : "Move";
  $("reject").hidden = !one?.new;
  $("undo").disabled = ended || !state.undo;
  $("redo").disabled = ended || !state.redo;
  $("undo").title = state.undo ? `Undo: ${state.undo}` : "";
  $("redo").title = state.redo ? `Redo: ${state.redo}` : "";
  if (moving) $("name").placeholder = `Class of ${count(chosen().length, "image", "images")}, or a new name`;
  else $("name").placeholder = one?.new && !one.decided ? "Name this class" : "Another name, or a class to merge into";
  $("empty").hidden = state.ready && (list === null || list.index.length > 0);
  if (!state.ready) {
    $("empty").textContent = state.refused ? sentence(state.refused) : state.progress
      ? `The model looks at the images: ${state.progress[0]} of ${state.progress[1]}.` : "The model looks at the images.";
  } else {
    $("empty").textContent = !isClass(group) ? "No image is unsure." : "No image of this folder is of this class.";
  }
}

function subtitle(one) {
  if (group === null || !state.ready) return "";
  const parts = [count(imagesOf(group), "image", "images") + ", most doubtful first"];
  if (group === POSSIBLY_NEW) parts.push("unlike every class");
  if (one?.new && one.found_as !== one.name) parts.push(`found as ${one.found_as}`);
  if (one && !one.new) parts.push("a class with labels");
  const merged = one ? state.classes.filter((other) => other.id !== one.id && other.stands_for === one.id) : [];
  if (merged.length) parts.push(`with ${merged.map((other) => other.name).join(", ")}`);
  if (state.busy) parts.push("being sorted again");
  return parts.join(" · ");
}

function go(id) {
  if (id === undefined || id === null) return;
  group = id;
  cursor = 0;
  declined = null;
  unselect();
  keepWhole();
  moving = false;
  $("offer").hidden = true;
  $("name").value = "";
  closeNames();
  say("");
  history.replaceState(null, "", isClass(id) ? `#${id}` : `#${address(id).slice(7)}`);
  showQueue();
  showBar();
  $("groups").querySelector('[aria-current="true"]')?.scrollIntoView({ block: "nearest" });
  $("scroll").scrollTop = 0;
  load();
}

function fromAddress() {
  const named = location.hash.slice(1), others = { unsure: UNSURE, "possibly-new": POSSIBLY_NEW };
  return others[named] ?? (/^\d+$/.test(named) ? Number(named) : null);
}

async function load() {
  if (group === null || !state.ready) return;
  const mine = ++request, wanted = group;
  let answer;
  try {
    answer = await ask(address(wanted));
  } catch (error) {
    if (error.message !== "404") end();
    return;
  }
  if (mine !== request) return;
  const held = list?.group === wanted ? list.index[cursor] : undefined;
  const kept = list?.group === wanted ? new Set([...selected].map((at) => list.index[at])) : new Set();
  list = { ...answer, group: wanted };
  cursor = Math.max(0, held === undefined ? 0 : list.index.indexOf(held));
  selected = new Set(list.index.flatMap((index, at) => (kept.has(index) ? [at] : [])));
  anchor = cursor;
  showBar();
  redraw();
  if (answer.whole) return;
  // Of many images the server tells the shapes of the first ones at once, and of all after a while.
  const all = await ask(`${address(wanted)}?whole`).catch(() => null);
  if (!all || mine !== request) return;
  const at = rows.length ? rows[rowAt($("scroll").scrollTop - above())].first : 0;
  list.shape = all.shape;
  arrange();
  if (at > 0) $("scroll").scrollTop = rows[rowOf(at)].top + above();
}

function redraw() {
  for (const cell of cells.values()) cell.remove();
  cells.clear();
  arrange();
}

const thumbnail = (index) => `thumbnail/${index}?${state.generation}`;
const address = (wanted) => `images/${wanted === UNSURE ? "unsure" : wanted === POSSIBLY_NEW ? "possibly-new" : wanted}`;
const above = () => $("canvas").offsetTop - $("scroll").offsetTop;

// The images: rows of equal height, of which only those in sight are in the document ------------------------------

function arrange() {
  if (!list) return;
  const width = $("canvas").clientWidth, wanted = Number($("size").value), most = Math.max(1, list.index.length);
  rows = [];
  let top = 0, first = 0, sum = 0;
  const close = (end, height) => {
    let left = 0;
    const held = [];
    for (let at = first; at < end; at++) {
      const wide = Math.min(width, shape(at) * height);
      held.push({ left, width: wide });
      left += wide + GAP;
    }
    rows.push({ top, height, first, cells: held });
    top += height + CAPTION + GAP;
    first = end;
    sum = 0;
  };
  for (let at = 0; at < list.index.length; at++) {
    const next = sum + shape(at), room = width - GAP * (at - first);
    if (next * wanted >= room && at > first) {
      // The row is full with this image or without it, whichever changes the height less.
      const with_ = room / next, without = (room + GAP) / sum;
      if (wanted / with_ > without / wanted) {
        close(at, Math.min(without, 1.6 * wanted));
        sum = shape(at);
        continue;
      }
    }
    sum = next;
    if (sum * wanted >= room) close(at + 1, room / sum);
  }
  if (first < list.index.length) close(list.index.length, wanted);
  $("canvas").style.height = `${top}px`;
  $("canvas").setAttribute("aria-setsize", most);
  for (const [at, cell] of cells) place(cell, at);
  paint();
}

const shape = (at) => Math.min(3.2, Math.max(0.35, list.shape[at] || 4 / 3));

function rowOf(at) {
  let low = 0, high = rows.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (rows[middle].first <= at) low = middle;
    else high = middle - 1;
  }
  return low;
}

function rowAt(top) {
  const found = rows.findIndex((row) => row.top + row.height + CAPTION > top);
  return found < 0 ? rows.length - 1 : found;
}

function place(cell, at) {
  const row = rows[rowOf(at)], where = row.cells[at - row.first];
  cell.style.cssText = `left:${where.left}px;top:${row.top}px;width:${where.width}px`;
  cell.querySelector("img").style.height = `${row.height}px`;
}

function paint() {
  if (!list || !rows.length) return;
  const from = $("scroll").scrollTop - above(), to = from + $("scroll").clientHeight;
  const inSight = new Set(), quickly = Math.abs(from - painted) > (to - from) / 3;
  painted = from;
  let at = rowAt(from - AHEAD);
  for (; at >= 0 && at < rows.length && rows[at].top < to + AHEAD; at++) {
    for (let k = 0; k < rows[at].cells.length; k++) inSight.add(rows[at].first + k);
  }
  for (const [position, cell] of cells) {
    if (!inSight.has(position)) {
      cell.querySelector("img").removeAttribute("src"); // a thumbnail that is not needed any more is not waited for
      cell.remove();
      cells.delete(position);
    }
  }
  for (const position of inSight) {
    if (!cells.has(position)) {
      const cell = draw(position, quickly);
      cells.set(position, cell);
      place(cell, position);
      $("canvas").append(cell);
    }
  }
  choose(cursor, false);
}

function draw(at, quickly) {
  const image = make("img", { alt: list.name[at], decoding: "async", draggable: false }), source = thumbnail(list.index[at]);
  // What only flies past is not asked for.
  if (quickly) setTimeout(() => { if (image.isConnected) image.src = source; }, 120);
  else image.src = source;
  image.addEventListener("load", () => image.classList.toggle("small", image.naturalHeight < SMALL && image.naturalWidth < SMALL));
  const sure = make("div", { className: "sure" }, make("span"));
  sure.firstElementChild.style.width = `${100 * list.sure[at]}%`;
  const cell = make("div", { className: "cell", id: `image-${at}`, role: "option", title: list.name[at] }, image, sure,
    line("b", !isClass(list.group) ? nameOf(list.best[at]) : "", list.sure[at]));
  if (hasSecond(at)) cell.append(line("span", nameOf(list.second[at]), list.runner_up[at]));
  cell.setAttribute("aria-posinset", at + 1);
  cell.setAttribute("aria-setsize", list.index.length);
  cell.setAttribute("aria-selected", String(isSelected(at)));
  cell.draggable = true;
  cell.addEventListener("dragstart", (event) => {
    if (!isSelected(at)) { unselect(); choose(at); }
    event.dataTransfer.setData("application/x-hoarfrost", "images");
    event.dataTransfer.effectAllowed = "move";
  });
  cell.addEventListener("click", (event) => {
    select(at, event.shiftKey, event.ctrlKey || event.metaKey);
    $("canvas").focus({ preventScroll: true });
    if (event.pointerType === "touch") view();
  });
  cell.addEventListener("dblclick", view);
  return cell;
}

// A class and how probable it is; where room is short, the name is cut and not the number.
function line(kind, name, share) {
  const parts = [make(kind, { textContent: percent(share), className: "share" })];
  if (name) parts.unshift(make(kind, { textContent: name, className: "who" }));
  return make("p", {}, ...parts);
}

const hasSecond = (at) => list.second[at] !== list.best[at] && list.runner_up[at] >= 0.005;

function choose(at, scroll = true) {
  if (!list?.index.length) return;
  const before = cursor;
  cursor = Math.max(0, Math.min(list.index.length - 1, at));
  if (scroll) {
    const row = rows[rowOf(cursor)], view = $("scroll"), top = row.top + above();
    if (top < view.scrollTop) view.scrollTop = top - GAP;
    const bottom = top + row.height + CAPTION + GAP;
    if (bottom > view.scrollTop + view.clientHeight) view.scrollTop = bottom - view.clientHeight;
    if (!cells.has(cursor)) paint();
  }
  for (const one of [before, cursor]) cells.get(one)?.setAttribute("aria-selected", String(isSelected(one)));
  for (const one of [before, cursor]) cells.get(one)?.classList.toggle("cursor", one === cursor);
  $("canvas").setAttribute("aria-activedescendant", `image-${cursor}`);
}

// Several images: Shift goes on from where the selection began, Ctrl adds or takes one away.
const isSelected = (at) => (selected.size ? selected.has(at) : at === cursor);
const chosen = () => (selected.size ? [...selected].sort((a, b) => a - b) : list?.index.length ? [cursor] : []);

function select(at, further = false, another = false) {
  const goal = Math.max(0, Math.min(list.index.length - 1, at));
  if (further) {
    selected = new Set();
    for (let k = Math.min(anchor, goal); k <= Math.max(anchor, goal); k++) selected.add(k);
  } else if (another) {
    if (!selected.size) selected.add(cursor);
    if (!selected.delete(goal)) selected.add(goal);
    anchor = goal;
  } else {
    selected.clear();
    anchor = goal;
  }
  for (const [position, cell] of cells) cell.setAttribute("aria-selected", String(selected.has(position)));
  choose(goal);
  showBar();
}

function unselect() {
  selected.clear();
  anchor = cursor;
  for (const [position, cell] of cells) cell.setAttribute("aria-selected", String(position === cursor));
}

function vertically(step) {
  const at = rowOf(cursor), row = rows[at], other = rows[at + step];
  if (!other) return cursor;
  const here = row.cells[cursor - row.first], middle = here.left + here.width / 2;
  const distance = (cell) => Math.abs(cell.left + cell.width / 2 - middle);
  const best = other.cells.reduce((found, cell, k) => (distance(cell) < distance(other.cells[found]) ? k : found), 0);
  return other.first + best;
}

// The original of an image -----------------------------------------------------------------------------------------

function view() {
  if (!list?.index.length) return;
  const words = [list.name[cursor], `${nameOf(!isClass(list.group) ? list.best[cursor] : list.group)} ${percent(list.sure[cursor])}`,
    hasSecond(cursor) && `${nameOf(list.second[cursor])} ${percent(list.runner_up[cursor])}`, `${cursor + 1} of ${list.index.length}`];
  $("caption").textContent = words.filter(Boolean).join(" · ");
  $("original").src = `original/${list.index[cursor]}?${state.generation}`;
  $("original").alt = list.name[cursor];
  if (!$("viewer").open) $("viewer").showModal();
}

function onwards(step) {
  choose(cursor + step);
  view();
}

// Deciding -----------------------------------------------------------------------------------------------------------

function undecidedAfter(id, waiting) {
  const at = Math.max(0, waiting.indexOf(id));
  const around = [...waiting.slice(at + 1), ...waiting.slice(0, at)];
  return around.find((other) => isClass(other) && byId(other).stands_for === other && byId(other).new && !byId(other).decided);
}

// One decision on the class that is shown; then the next one that waits is shown, if the class was not decided before.
const settle = (decision, words) => inTurn(async () => {
  const id = decision.class, waiting = order(), was = byId(id).new && !byId(id).decided;
  if (byId(id).stands_for !== id || !(await decide(decision))) return;
  const next = was ? undecidedAfter(id, waiting) : undefined;
  if (next !== undefined) go(next);
  else if (group !== null) go(group);
  say(`${words} Undo with U.`);
  $("canvas").focus({ preventScroll: true });
});

// Moving and splitting: images are evidence of the class that a person says -------------------------------------------

let moving = false;

function startMove() {
  if (!list?.index.length) return;
  moving = true;
  $("name").value = "";
  showBar();
  $("give").textContent = "Move";
  focusName(true);
}

function endMove() {
  moving = false;
  $("name").value = "";
  closeNames();
  showBar();
}

const moveTo = (target, name) => inTurn(async () => {
  const images = chosen().map((at) => list.index[at]), generation = state.generation;
  if (!images.length) return;
  say(`${count(images.length, "image goes", "images go")} to ${name}.`);
  if (!(await decide({ verb: "move", images, generation, ...target }))) return;
  endMove();
  unselect();
  learned(`${count(images.length, "image is", "images are")} now ${name}.`);
  $("canvas").focus({ preventScroll: true });
});

// What else changed is said as soon as the model has looked at all images again.
function learned(words) {
  told = words;
  if (state.changed === null) return say(`${words} Undo with U.`);
  take(state);
}

async function startSplit(into = 2) {
  if (!isClass(group) || !list?.index.length) return say("Only classes with images can be split.", true);
  const wanted = group;
  say("Looking for groups.");
  const answer = await fetch(`split/${wanted}?into=${into}`, { cache: "no-store" }).catch(() => null);
  if (!answer) return end();
  const found = await answer.json().catch(() => ({}));
  if (wanted !== group) return;
  if (!answer.ok) return say(sentence(found.refused ?? "This class cannot be split"), true);
  say("");
  parts = found;
  showParts();
  $("part").focus();
}

function showParts() {
  $("parted").textContent = `${nameOf(parts.class)} in ${parts.groups.length} groups. Click an image to put it into the next group.`;
  $("halves").replaceChildren(...parts.groups.map((images, at) => make("figure", {},
    make("figcaption", { textContent: `${at ? "New class" : `Stays ${nameOf(parts.class)}`}, ${count(images.length, "image", "images")}` }),
    make("div", {}, ...images.slice(0, 60).map((index) => {
      const made = make("button", { type: "button", title: "To the next group" }, make("img", { src: thumbnail(index), alt: "" }));
      made.addEventListener("click", () => across(index, at));
      return made;
    })))));
  $("other-parts").textContent = parts.groups.length === 2 ? "Three groups" : "Two groups";
  $("parts").hidden = false;
}

function across(index, from) {
  const to = (from + 1) % parts.groups.length;
  parts.groups[from] = parts.groups[from].filter((one) => one !== index);
  parts.groups[to] = [index, ...parts.groups[to]];
  showParts();
}

function keepWhole() {
  parts = null;
  $("parts").hidden = true;
}

const acceptSplit = () => inTurn(async () => {
  if (!parts) return;
  const groups = parts.groups.slice(1).filter((images) => images.length), name = nameOf(parts.class), generation = parts.generation;
  if (!groups.length || !parts.groups[0].length) return say("Leave at least one image in each group.", true);
  const first = state.classes.length;
  if (!(await decide({ verb: "split", class: parts.class, groups, generation }))) return;
  keepWhole();
  go(first);
  learned(`${name} is split.`);
});

function submit() {
  const text = $("name").value.trim();
  if (moving) {
    const target = present().find((candidate) => candidate.name === text);
    return text ? moveTo(target ? { class: target.id } : { name: text }, text) : $("name").focus();
  }
  const one = byId(group);
  if (!text) return $("name").focus();
  if (text === one.name) return say(`This class is called ${text} already.`, true);
  const other = present().find((candidate) => candidate.name === text);
  if (other) return offer(other);
  return settle({ verb: "rename", class: group, name: text }, `${one.name} is now called ${text}.`);
}

function offer(other) {
  const one = byId(group);
  closeNames();
  $("offered").textContent = `There already is a class ${other.name}. Merge ${one.name} into it?`;
  $("compare").replaceChildren(...[one, other].filter((shown) => shown.samples.length).map((shown) => make("figure", {},
    make("figcaption", { textContent: `${shown.name}, ${count(shown.images, "image", "images")}` }),
    ...shown.samples.slice(0, 3).map((index) => make("img", { src: thumbnail(index), alt: "" })))));
  $("merge").textContent = "Merge";
  $("merge").dataset.into = other.id;
  $("offer").hidden = false;
  $("merge").focus();
}

function decline() {
  $("offer").hidden = true;
  $("name").focus();
  $("name").select();
}

function accept() {
  const other = byId(Number($("merge").dataset.into)), one = byId(group);
  $("offer").hidden = true;
  return settle({ verb: "merge", class: group, into: other.id }, `${one.name} is now part of ${other.name}.`);
}

function reject() {
  if (!isClass(group) || !byId(group).new) return say("Only new classes can be rejected.", true);
  return settle({ verb: "reject", class: group }, `${byId(group).name} is rejected.`);
}

const back = (verb) => inTurn(async () => {
  const words = state[verb];
  if (!words) return say(`There is nothing to ${verb}.`, true);
  if (await decide({ verb })) say(`${verb === "undo" ? "Undone" : "Done again"}: ${words}.`);
});

// The name field, with the classes that there are ------------------------------------------------------------------

let merging = false, active = -1;

function suggest() {
  const typed = $("name").value.trim().toLowerCase();
  const fits = present().filter((one) => one.id !== group && (merging || typed) && one.name.toLowerCase().includes(typed));
  fits.sort((a, b) => b.name.toLowerCase().startsWith(typed) - a.name.toLowerCase().startsWith(typed));
  active = -1;
  $("names").replaceChildren(...fits.slice(0, 50).map((one, at) => {
    const made = make("li", { role: "option", id: `name-${at}` }, make("b", { textContent: one.name }),
      make("span", { textContent: count(one.images, "image", "images") }));
    made.dataset.id = one.id;
    made.addEventListener("pointerdown", (event) => { event.preventDefault(); pick(one); });
    return made;
  }));
  $("names").hidden = !fits.length;
  $("name").setAttribute("aria-expanded", String(fits.length > 0));
  $("name").removeAttribute("aria-activedescendant");
  $("give").textContent = moving ? "Move" : present().some((one) => one.name === $("name").value.trim() && one.id !== group) ? "Merge" : "Name";
}

function closeNames() {
  merging = false;
  active = -1;
  $("names").hidden = true;
  $("name").setAttribute("aria-expanded", "false");
  $("name").removeAttribute("aria-activedescendant");
  $("give").textContent = moving ? "Move" : "Name";
}

function mark(step) {
  const shown = [...$("names").children];
  if ($("names").hidden) { merging = true; return suggest(); }
  active = (active + step + shown.length + (active < 0 && step < 0 ? 1 : 0)) % shown.length;
  shown.forEach((one, at) => one.setAttribute("aria-selected", String(at === active)));
  shown[active].scrollIntoView({ block: "nearest" });
  $("name").setAttribute("aria-activedescendant", shown[active].id);
}

function pick(one) {
  $("name").value = one.name;
  if (moving) moveTo({ class: one.id }, one.name);
  else offer(one);
}

$("name").addEventListener("input", () => { $("offer").hidden = true; suggest(); });
$("name").addEventListener("blur", closeNames);
$("name").addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    mark(event.key === "ArrowDown" ? 1 : -1);
  } else if (event.key === "Enter" && active >= 0) {
    event.preventDefault();
    pick(byId(Number($("names").children[active].dataset.id)));
  } else if (event.key === "Escape") {
    event.stopPropagation();
    if ($("names").hidden) {
      $("name").value = "";
      if (moving) endMove();
      $("canvas").focus({ preventScroll: true });
    }
    closeNames();
  }
});
$("naming").addEventListener("submit", (event) => { event.preventDefault(); submit(); });
$("merge").addEventListener("click", accept);
$("decline").addEventListener("click", decline);
$("reject").addEventListener("click", reject);
$("split").addEventListener("click", () => startSplit());
$("move").addEventListener("click", startMove);
$("part").addEventListener("click", acceptSplit);
$("other-parts").addEventListener("click", () => startSplit(5 - parts.groups.length));
$("whole").addEventListener("click", () => { keepWhole(); $("canvas").focus({ preventScroll: true }); });
$("undo").addEventListener("click", () => back("undo"));
$("redo").addEventListener("click", () => back("redo"));
$("help").addEventListener("click", () => $("keys").showModal());
$("open-queue").addEventListener("click", () => document.body.classList.add("listing"));
$("close-queue").addEventListener("click", () => document.body.classList.remove("listing"));
$("back").addEventListener("click", () => onwards(-1));
$("on").addEventListener("click", () => onwards(1));
$("shut").addEventListener("click", () => $("viewer").close());

// Keys ---------------------------------------------------------------------------------------------------------------

function otherGroup(step) {
  const all = order(), at = all.indexOf(group);
  go(all[Math.max(0, Math.min(all.length - 1, at + step))]);
}

function resize(step) {
  $("size").value = Number($("size").value) + step;
  $("size").dispatchEvent(new Event("input"));
}

function focusName(merge) {
  if ($("naming").hidden || $("field").hidden) return;
  $("name").focus();
  $("name").select();
  if (merge) { merging = true; suggest(); }
}

const KEYS = {
  j: () => otherGroup(1),
  k: () => otherGroup(-1),
  n: () => { endMove(); focusName(false); },
  m: () => { endMove(); focusName(true); },
  v: startMove,
  s: () => startSplit(),
  x: reject,
  u: () => back("undo"),
  r: () => back("redo"),
  "+": () => resize(20),
  "=": () => resize(20),
  "-": () => resize(-20),
  "?": () => $("keys").showModal(),
  ArrowRight: (event) => select(cursor + 1, event.shiftKey),
  ArrowLeft: (event) => select(cursor - 1, event.shiftKey),
  ArrowDown: (event) => select(vertically(1), event.shiftKey),
  ArrowUp: (event) => select(vertically(-1), event.shiftKey),
  Home: (event) => select(0, event.shiftKey),
  End: (event) => select(list.index.length - 1, event.shiftKey),
  " ": view,
  Enter: view,
};

document.addEventListener("keydown", (event) => {
  if (!state || ended || event.defaultPrevented || event.isComposing) return;
  const inField = event.target.matches("input"), onButton = event.target.matches("button, a");
  if ($("viewer").open) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step) { event.preventDefault(); onwards(step); }
    if (event.key === " " && !onButton) { event.preventDefault(); $("viewer").close(); }
    return;
  }
  if ($("keys").open) return;
  if (event.key === "Escape") {
    if (!$("offer").hidden) return decline();
    if (parts) keepWhole();
    unselect();
    showBar();
    document.body.classList.remove("listing");
    return $("canvas").focus({ preventScroll: true });
  }
  if ((event.ctrlKey || event.metaKey) && !inField && ["z", "y"].includes(event.key.toLowerCase())) {
    event.preventDefault();
    return back(event.key.toLowerCase() === "y" || event.shiftKey ? "redo" : "undo");
  }
  if (inField || event.ctrlKey || event.metaKey || event.altKey) return;
  if (onButton && ["Enter", " "].includes(event.key)) return;
  const action = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!action || (!list && !"jk?".includes(event.key))) return;
  event.preventDefault();
  action(event);
});

$("viewer").addEventListener("close", () => {
  $("original").removeAttribute("src");
  $("canvas").focus({ preventScroll: true });
});

// Beginning ----------------------------------------------------------------------------------------------------------

let waiting = 0;
$("scroll").addEventListener("scroll", () => {
  waiting ||= requestAnimationFrame(() => { waiting = 0; paint(); });
}, { passive: true });
$("size").value = sessionStorage.getItem("size") ?? (innerWidth < 600 ? 110 : 170);
$("size").addEventListener("input", () => { sessionStorage.setItem("size", $("size").value); arrange(); choose(cursor); });
new ResizeObserver(arrange).observe($("scroll"));
addEventListener("hashchange", () => {
  const wanted = fromAddress();
  if (state && wanted !== group && (!isClass(wanted) || byId(wanted)?.stands_for === wanted)) go(wanted);
});
watch();
