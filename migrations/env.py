"""Runs the migrations on the connection that coresteer.db hands over, in its transaction."""

from alembic import context

from coresteer.db import Base

context.configure(connection=context.config.attributes["connection"], target_metadata=Base.metadata)
context.run_migrations()
