"""Curves of a training or a comparison as SVG and HTML."""
