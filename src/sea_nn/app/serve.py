"""Start the page: on this machine alone, or elsewhere behind a token."""

from __future__ import annotations

import os
import secrets
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from sea_nn.app.gate import MOST_BODY, Gate, is_local
from sea_nn.app.page import read_head
from sea_nn.errors import InputError


def serve(page: Any, host: str = "127.0.0.1", port: int | None = None, **options: Any) -> str:
    """Serve the page and return the address to open, with the token where one is needed.

    ``options`` go to Gradio's ``launch``.
    """
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # the server would report to Gradio's makers
    token = None if is_local(host) else secrets.token_urlsafe(24)
    try:
        _, address, _ = page.launch(
            server_name=host,
            server_port=port,
            share=False,
            quiet=True,
            inline=False,
            prevent_thread_lock=True,
            allowed_paths=[],
            footer_links=[],
            max_file_size=MOST_BODY,
            ssr_mode=False,
            theme=gr.themes.Default(
                primary_hue="amber",
                neutral_hue="slate",
                font=["system-ui", "sans-serif"],
                font_mono=["ui-monospace", "monospace"],
            ),
            head=read_head(),
            app_kwargs={"middleware": [Middleware(Gate, token=token)]},
            **options,
        )
    except OSError as error:
        raise InputError(f"cannot listen at {host}, port {port or 'from 7860'}: {error}") from error
    return str(address) if token is None else f"{address}?token={token}"
