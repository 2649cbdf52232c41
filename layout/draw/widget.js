// The explorer's front end. It shows what Python sent and sends back what was changed; it computes nothing.
// model: `view` (what to show, from Python), `request` (changes, to Python).

const FIELDS = [
  ["shape", "shape", "text"],
  ["stride", "stride", "text"],
  ["bits", "B", "range"],
  ["base", "M", "range"],
  ["shift", "S", "range"],
  ["dtype", "type", "select"],
  ["instruction", "instruction", "select"],
  ["lanes", "lanes", "text"],
  ["phase", "phase", "range"],
];

function element(tag, attributes = {}, text = "") {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text) made.textContent = text;
  return made;
}

function render({ model, el }) {
  // JupyterLab would take the arrow keys for itself.
  const root = element("div", { class: "sw-explorer", "data-lm-suppress-shortcuts": "true" });
  root.addEventListener("keydown", (event) => event.stopPropagation());
  const controls = element("div", { class: "sw-controls" });
  const inputs = {};
  const outputs = {};
  let serial = 0;

  const ask = (changes) => {
    serial += 1;
    model.set("request", { serial, changes });
    model.save_changes();
  };

  for (const [name, label, kind] of FIELDS) {
    const box = element("label", { class: `sw-field sw-${kind}` });
    box.append(element("span", {}, label));
    const input = kind === "select" ? element("select") : element("input", { type: kind, step: "1" });
    input.dataset.field = name;
    input.setAttribute("aria-label", label);
    // Sliders and choices follow the hand; text is sent when it is finished.
    const event = kind === "range" ? "input" : "change";
    input.addEventListener(event, () => ask({ [name]: kind === "range" ? Number(input.value) : input.value }));
    box.append(input);
    if (kind === "range") {
      outputs[name] = element("output");
      box.append(outputs[name]);
    }
    inputs[name] = input;
    controls.append(box);
  }

  const error = element("p", { class: "sw-error", role: "alert" });
  const numbers = element("dl", { class: "sw-numbers" });
  const panels = element("div", { class: "sw-panels" });
  const line = element("div", { class: "sw-state" });
  const state = element("input", { type: "text", "aria-label": "state", spellcheck: "false" });
  state.dataset.field = "state";
  state.addEventListener("change", () => ask({ state: state.value }));
  const copy = element("button", { type: "button" }, "copy");
  copy.addEventListener("click", () => {
    state.select();
    const done = () => { copy.textContent = "copied"; setTimeout(() => { copy.textContent = "copy"; }, 1200); };
    if (navigator.clipboard) navigator.clipboard.writeText(state.value).then(done, () => {});
    else if (document.execCommand("copy")) done();
  });
  line.append(state, copy);
  root.append(controls, line, error, numbers, panels);
  el.append(root);

  // Linked hover over all panels: whatever shares a word of memory with what is pointed at is outlined.
  panels.addEventListener("pointerover", (event) => {
    for (const old of panels.querySelectorAll(".sw-linked")) old.classList.remove("sw-linked");
    const names = event.target.closest?.("[data-link]")?.dataset.link.split(" ") ?? [];
    for (const name of names)
      for (const found of panels.querySelectorAll(`rect[data-link~="${CSS.escape(name)}"]`)) found.classList.add("sw-linked");
  });
  panels.addEventListener("pointerleave", () => {
    for (const old of panels.querySelectorAll(".sw-linked")) old.classList.remove("sw-linked");
  });

  const show = () => {
    const view = model.get("view");
    for (const [name, , kind] of FIELDS) {
      const input = inputs[name];
      if (kind === "select" && input.options.length === 0)
        for (const choice of view.choices[name]) input.append(element("option", { value: choice }, choice));
      if (kind === "range") [input.min, input.max] = view.ranges[name];
      // What is being typed is not taken away.
      if (document.activeElement !== input || kind !== "text") input.value = view.fields[name];
      if (outputs[name]) outputs[name].textContent = name === "phase" ? `${view.fields.phase} of ${view.phases}` : view.fields[name];
    }
    inputs.phase.disabled = view.phases < 2;
    state.value = view.state;
    error.textContent = view.error;
    error.hidden = !view.error;
    numbers.replaceChildren();
    for (const [name, value] of view.numbers) {
      const given = element("dd", {}, value);
      given.dataset.number = name;
      numbers.append(element("dt", {}, name), given);
    }
    panels.replaceChildren();
    for (const [name, svg] of view.panels) {
      const figure = element("figure");
      figure.dataset.panel = name;
      figure.innerHTML = svg; // made by Python, every text in it escaped
      panels.append(figure);
    }
    root.dataset.serial = view.serial;
  };
  model.on("change:view", show);
  show();
  return () => model.off("change:view", show);
}

export default { render };
