"""The HTML report, one file that works offline: `data` chooses, `page` puts it into the template, `assets` draws it."""

from .page import html_bytes, report_html

__all__ = ["html_bytes", "report_html"]
