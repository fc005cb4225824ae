//! PostgreSQL: connections, migrations, formats of rows.

pub(crate) mod calls;
pub(crate) mod connect;
pub(crate) mod copy_format;
pub(crate) mod dsn;
pub(crate) mod migrate;
pub(crate) mod pool;
pub(crate) mod row_key;
pub(crate) mod rows;
