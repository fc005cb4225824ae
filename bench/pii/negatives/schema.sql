-- Orders and what belongs to them.
CREATE TABLE orders (
    id           BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id  BIGINT NOT NULL REFERENCES customers (id) ON DELETE RESTRICT,
    state        TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'paid', 'shipped', 'returned')),
    total_cents  INTEGER NOT NULL CHECK (total_cents >= 0),
    created_at   TIMESTAMPTZ NOT NULL DEFAULT now()
);

CREATE INDEX CONCURRENTLY orders_by_state ON orders (state, created_at DESC);
CREATE UNIQUE INDEX items_once ON order_items (order_id, article_id);

WITH monthly AS (
    SELECT date_trunc('month', created_at) AS month, count(*) AS orders, sum(total_cents) / 100.0 AS revenue
    FROM orders
    WHERE state <> 'returned'
    GROUP BY 1
)
SELECT month, orders, revenue, revenue - lag(revenue) OVER (ORDER BY month) AS change
FROM monthly
ORDER BY month DESC
LIMIT 24;

ALTER TABLE customers ADD COLUMN newsletter BOOLEAN NOT NULL DEFAULT false;
GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO application;
