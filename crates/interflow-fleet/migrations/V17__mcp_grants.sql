-- What authorization servers granted the gateway for users at MCP servers, sealed with the secret of the installation.
CREATE TABLE mcp_grants(
    "user" TEXT NOT NULL,
    server TEXT NOT NULL,
    connected BIGINT NOT NULL,
    sealed TEXT NOT NULL,
    PRIMARY KEY ("user", server)
);
