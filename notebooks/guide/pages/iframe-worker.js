// Search in pages that are opened as files: a browser starts no worker from file://, so its script runs in a hidden frame.
// Material's scripts look for the name IFrameWorker.
if (location.protocol === "file:") {
  const load = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done) => {
    const script = document.createElement("script");
    script.src = url;
    script.onload = done;
    document.body.appendChild(script);
  })), Promise.resolve());

  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      addEventListener("message", (event) => {
        if (event.source !== inside) return;
        const copy = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(copy);
        if (this.onmessage) this.onmessage(copy);
      });
      inside.document.open();
      inside.document.write(`<body><script>postMessage = (data) => parent.postMessage(data, "*"); importScripts = ${load}</script>`
        + `<script src="${url}"></script></body>`);
      inside.document.close();
      this.ready = new Promise((done) => { inside.onload = done; });
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
