"""Export to further formats, and upload to the Hugging Face Hub."""
