// A participant's page: the survey of this address, with the ticket and the scripts' hash of its fragment.
import { survey } from './survey.js';

survey(document.getElementById('participate'), { server: location.origin, fragment: location.hash.slice(1), history });
window.addEventListener('hashchange', () => location.reload());
for (const link of document.querySelectorAll('[data-language]')) link.hash = location.hash; // the ticket stays
