"""Updates that were captured elsewhere: taken in, checked, and handed to the workflow."""
