-- Settings of all replicas, a text for each revision; the newest of a name is in force.
CREATE TABLE settings(
    name TEXT NOT NULL, revision BIGINT NOT NULL, at TIMESTAMPTZ NOT NULL DEFAULT now(), author TEXT NOT NULL,
    restores BIGINT, content BYTEA NOT NULL, PRIMARY KEY(name, revision));

-- What each replica did with the newest revision that it saw.
CREATE TABLE settings_status(
    replica TEXT NOT NULL, name TEXT NOT NULL, revision BIGINT NOT NULL, at TIMESTAMPTZ NOT NULL DEFAULT now(),
    refused TEXT, PRIMARY KEY(replica, name));
