"""What people see of a pipeline: the progress of a job, the findings of the doctor, the report."""
