"""What is done before anything changes: targets, pre-flight, staging, the way back."""
