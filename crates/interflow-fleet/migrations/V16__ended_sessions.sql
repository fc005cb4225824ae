-- Browser sessions that a logout ended before their time, at all replicas. Rows are of no use once the session would have
-- expired.
CREATE TABLE ended_sessions(id TEXT PRIMARY KEY, expires TIMESTAMPTZ NOT NULL);
