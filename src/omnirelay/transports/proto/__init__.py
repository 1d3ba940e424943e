"""Messages generated from proto/ by `python proto/generate.py`. Never: edit by hand."""
