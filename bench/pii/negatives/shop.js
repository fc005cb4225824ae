import express from "express";
import { readFile } from "node:fs/promises";
import { createPool } from "./database.js";

const app = express();
const pool = createPool({ max: 20, idleTimeoutMillis: 30000 });
const port = Number(process.env.PORT ?? 8080);

// Prices are kept in cents so that nothing is lost by rounding.
function total(cart) {
  return cart.items.reduce((sum, item) => sum + item.quantity * item.unitPrice, 0);
}

app.get("/health", (_request, response) => response.json({ status: "ok", uptime: process.uptime() }));

app.post("/carts/:id/items", async (request, response, next) => {
  try {
    const { sku, quantity = 1 } = request.body;
    if (!/^[A-Z]{3}-\d{4}$/.test(sku)) {
      return response.status(422).json({ error: "InvalidSku", message: `unknown article ${sku}` });
    }
    const { rows } = await pool.query("SELECT id, name, unit_price FROM articles WHERE sku = $1", [sku]);
    const cart = await addItem(request.params.id, rows[0], quantity);
    response.status(201).json({ ...cart, total: total(cart) });
  } catch (error) {
    next(error);
  }
});

export default class CartView extends HTMLElement {
  static observedAttributes = ["open", "count"];
  #listeners = new Map();

  connectedCallback() {
    this.attachShadow({ mode: "open" }).innerHTML = `<slot name="title"></slot><ul class="items"></ul>`;
    window.requestAnimationFrame(() => this.render());
  }
}

app.listen(port, () => console.log(`listening on port ${port}`));
