"""Export datasets to other formats and trainers, and upload them to the Hugging Face Hub."""
