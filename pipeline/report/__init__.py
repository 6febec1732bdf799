"""The output for users: the progress of a job, the findings of the doctor, the report."""
