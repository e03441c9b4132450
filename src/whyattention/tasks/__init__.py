"""Where sequences come from. A task draws batches and scores a model on them; it knows no model."""
