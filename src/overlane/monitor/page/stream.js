// The stream of lines from the monitor: the past, then every change as it comes. Lost, it is asked for again.

const SILENCE_MS = 4000;
const PAUSE_MS = 1000;

export class Stream {
  // heard: { head, change, caughtUp, lost, back, refused }
  constructor(heard) {
    this.heard = heard;
    this.token = tokenFromAddress() ?? sessionStorage.getItem("overlane-token");
    this.isLost = false;
  }

  async run() {
    for (;;) {
      try {
        if (await this.follow()) return; // a recording, and all of it has come
      } catch (error) {
        if (error instanceof Unauthorized) {
          this.token = await this.heard.refused(this.token !== null);
          sessionStorage.setItem("overlane-token", this.token);
          continue;
        }
      }
      this.lose();
      await new Promise((resume) => setTimeout(resume, PAUSE_MS));
    }
  }

  // Until it ends; whether it is whole then.
  async follow() {
    const stop = new AbortController();
    let watchdog = setTimeout(() => stop.abort(), SILENCE_MS);
    try {
      const response = await fetch("api/stream", { headers: this.headers(), signal: stop.signal });
      if (response.status === 401) throw new Unauthorized();
      if (!response.ok) throw new Error(`status ${response.status}`);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      let head = null;
      for (;;) {
        const { value, done } = await reader.read();
        clearTimeout(watchdog);
        if (done) break;
        watchdog = setTimeout(() => (head?.is_live === false ? null : stop.abort()), SILENCE_MS);
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        for (const line of lines) {
          const said = JSON.parse(line);
          if (head === null) {
            head = said;
            this.heard.head(head);
          } else this.heard.change(said);
        }
        if (lines.length) {
          if (this.isLost) {
            this.isLost = false;
            this.heard.back();
          }
          this.heard.caughtUp();
        }
      }
      return head !== null && !head.is_live;
    } finally {
      clearTimeout(watchdog);
    }
  }

  lose() {
    if (!this.isLost) {
      this.isLost = true;
      this.heard.lost();
    }
  }

  headers() {
    return this.token ? { Authorization: `Bearer ${this.token}` } : {};
  }

  // Have something done; "" if it was, else why not.
  async deed(name, wanted) {
    try {
      const response = await fetch(`api/deeds/${name}`, {
        method: "POST",
        headers: { ...this.headers(), "Content-Type": "application/json" },
        body: JSON.stringify(wanted),
      });
      return response.ok ? "" : (await response.json()).error;
    } catch {
      return "the monitor does not respond";
    }
  }
}

class Unauthorized extends Error {}

function tokenFromAddress() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) history.replaceState(null, "", location.pathname);
  return given;
}
