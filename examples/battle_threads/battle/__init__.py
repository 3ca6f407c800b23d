"""Battles over a WebSocket: the dex, the rules, two servers that speak one protocol, the client, the agent."""
