"""Assessments: from the description of a deployment to a report of what its updates leak."""
