"""Reads what an account holds, and says what it means for the mesh.

boto3 is imported in `live` and its neighbours that call AWS, and nowhere else.
"""
