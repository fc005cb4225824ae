-- One row: the time of retention by the server's clock, what that showed at the last look, and for how long it has been watched
-- since it jumped, in microseconds: see retention_clock.rs.
CREATE TABLE retention_clock(
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    time bigint NOT NULL,
    seen bigint NOT NULL,
    watched bigint NOT NULL DEFAULT 0
);
INSERT INTO retention_clock(time, seen)
    SELECT now.micros, now.micros FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS micros) now;
