import { Api, path, sleep } from "./api.js";

export class Room {
  #api;
  #path;

  constructor(url, room, options) {
    this.#api = new Api(url, options);
    this.#path = path("rooms", room, "visitors");
  }

  enter({ visitor, token } = {}) {
    const headers = token ? { "Sluice-Token": token } : {};
    return this.#api.call("POST", this.#path, visitor ? { visitor } : {}, { headers, repeat: Boolean(visitor || token) });
  }

  ask(ticket, { wait = 0 } = {}) {
    return this.#me("GET", ticket, "", { query: { wait_ms: wait ? Math.floor(wait * 1000) : undefined }, wait: wait * 1000 });
  }

  async *wait(place) {
    for (yield place; place.status !== "inside"; yield place) {
      await sleep(place.next_poll_ms / 1000);
      place = await this.ask(place.ticket);
    }
  }

  renew(ticket) {
    return this.#me("POST", ticket, "/renew");
  }

  async leave(ticket) {
    await this.#me("DELETE", ticket);
  }

  #me(method, ticket, more = "", options = {}) {
    return this.#api.call(method, this.#path + "/me" + more, undefined, { headers: { Authorization: `Bearer ${ticket}` }, ...options });
  }
}
