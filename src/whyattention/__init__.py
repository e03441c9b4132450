"""Why Attention?: the models, tasks and instruments of the course."""
