"""The panel "Estimated noise": measurement, table and plots."""
